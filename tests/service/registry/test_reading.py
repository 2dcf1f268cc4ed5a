"""What the registry tells of what is in it."""

import pytest

from service.errors import InternalError, NotFound, Unprocessable
from service.registry.registry import Registry
from tests.service.registry.samples import an_artefact, damage


class TestReading:
    async def test_pages_the_tasks(self, registry: Registry) -> None:
        for task in "bca":
            await registry.upload(an_artefact(task))
        first = await registry.list_tasks(limit=2)
        assert [task.task for task in first.tasks] == ["a", "b"]
        second = await registry.list_tasks(after=first.after, limit=2)
        assert [task.task for task in second.tasks] == ["c"]
        assert second.after is None
        with pytest.raises(ValueError, match="limit"):
            await registry.list_tasks(limit=0)

    async def test_a_full_last_page_says_that_it_is_the_last(self, registry: Registry) -> None:
        for task in "ab":
            await registry.upload(an_artefact(task))
        assert (await registry.list_tasks(limit=2)).after is None

    async def test_describes_a_task(self, registry: Registry) -> None:
        for seed in (1, 2):
            await registry.upload(an_artefact(seed=seed))
        await registry.set_alias("trec", "prod", 1)
        detail = await registry.describe("trec")
        assert (detail.summary.default_version, detail.summary.versions) == (1, 2)
        assert [(v.version, v.aliases, v.servable) for v in detail.versions] == [
            (1, ("prod",), True),
            (2, (), True),
        ]
        assert detail.versions[0].description == "seed 1"
        assert (await registry.list_tasks()).tasks == (detail.summary,)

    async def test_shows_a_version_with_its_manifest(self, registry: Registry) -> None:
        record, _ = await registry.upload(an_artefact())
        await registry.set_alias("trec", "prod", 1)
        detail = await registry.version("trec", 1)
        assert detail.record == record
        assert detail.manifest["description"] == "seed 0"
        assert (detail.servable, detail.aliases) == (True, ("prod",))

    @pytest.mark.parametrize(
        ("task", "version", "code"),
        [
            ("nothing", 1, "task_not_found"),
            ("trec", 2, "version_not_found"),
            ("trec", 0, "version_not_found"),
            ("trec", -1, "version_not_found"),
            ("trec", 10**30, "version_not_found"),
        ],
    )
    async def test_says_what_does_not_exist(
        self, registry: Registry, task: str, version: int, code: str
    ) -> None:
        await registry.upload(an_artefact())
        for call in (registry.version(task, version), registry.artefact(task, version)):
            with pytest.raises(NotFound) as missing:
                await call
            assert missing.value.code == code

    async def test_says_what_is_malformed(self, registry: Registry) -> None:
        for call in (
            registry.describe("a/b"),
            registry.version("..", 1),
            registry.artefact("latest", 1),
        ):
            with pytest.raises(Unprocessable) as refused:
                await call
            assert refused.value.code == "invalid_task_name"
        with pytest.raises(NotFound):
            await registry.describe("nothing")

    async def test_never_hands_out_damaged_bytes(self, registry: Registry) -> None:
        await registry.upload(an_artefact())
        damage(registry.store)
        with pytest.raises(InternalError) as damaged:
            await registry.artefact("trec", 1)
        assert damaged.value.code == "artefact_damaged"

    async def test_knows_what_there_is(self, registry: Registry) -> None:
        await registry.upload(an_artefact())
        assert registry.knows("trec")
        assert not registry.knows("trec@1")
        await registry.delete_task("trec")
        assert not registry.knows("trec")
