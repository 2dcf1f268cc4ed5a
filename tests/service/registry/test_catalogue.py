from datetime import UTC, datetime, timedelta

import pytest

from capsules.template import Template
from service.engine.records import Served
from service.errors import Conflict, NotFound, Unprocessable
from service.registry.catalogue import Catalogue
from service.registry.snapshot import Refusal, Snapshot, TaskEntry, VersionEntry
from service.store.base import AliasRecord

START = datetime(2026, 1, 1, tzinfo=UTC)
FOREIGN = Refusal("backbone_mismatch", "Version 9 cannot be served here.")


def entry(
    version: int, capsule: Served | Refusal | None = None, task: str = "trec"
) -> VersionEntry:
    digest = f"{version:064x}"
    if capsule is None:
        capsule = Served(task, version, digest, ("no", "yes"), Template("{text}"), 16)
    return VersionEntry(
        version=version,
        digest=digest,
        size=1000 + version,
        created_at=START + timedelta(days=version),
        source="upload",
        labels=2,
        description=f"version {version}",
        capsule=capsule,
    )


def alias(name: str, version: int, task: str = "trec") -> AliasRecord:
    return AliasRecord(task, name, version, updated_at=START, revision=1)


@pytest.fixture
def catalogue() -> Catalogue:
    """Versions 1 and 2 of `trec`, with the alias `old` at 1."""
    catalogue = Catalogue()
    catalogue.publish("trec", entry(1))
    catalogue.publish("trec", entry(2))
    catalogue.point(alias("old", 1))
    return catalogue


class TestResolve:
    @pytest.mark.parametrize(
        ("reference", "version"), [("trec", 2), ("trec@1", 1), ("trec@2", 2), ("trec:old", 1)]
    )
    def test_finds(self, catalogue: Catalogue, reference: str, version: int) -> None:
        served = catalogue.resolve(reference)
        assert (served.task, served.version) == ("trec", version)
        assert catalogue.resolve(reference) is served

    @pytest.mark.parametrize(
        ("reference", "code"),
        [
            ("other", "task_not_found"),
            ("other@1", "task_not_found"),
            ("other:old", "task_not_found"),
            ("trec@3", "version_not_found"),
            ("trec@999999999999999999", "version_not_found"),
            ("trec:prod", "alias_not_found"),
        ],
    )
    def test_says_what_does_not_exist(
        self, catalogue: Catalogue, reference: str, code: str
    ) -> None:
        with pytest.raises(NotFound) as missing:
            catalogue.resolve(reference)
        assert missing.value.code == code

    def test_says_what_is_malformed(self, catalogue: Catalogue) -> None:
        with pytest.raises(Unprocessable):
            catalogue.resolve("TREC")

    def test_the_alias_prod_is_the_default_while_it_is_set(self, catalogue: Catalogue) -> None:
        catalogue.point(alias("prod", 1))
        assert catalogue.resolve("trec").version == 1
        catalogue.publish("trec", entry(3))
        assert catalogue.resolve("trec").version == 1
        catalogue.unpoint("trec", "prod")
        assert catalogue.resolve("trec").version == 3

    @pytest.mark.parametrize("reference", ["trec", "trec@9"])
    def test_a_newest_version_that_cannot_run_is_not_replaced_by_an_older(
        self, catalogue: Catalogue, reference: str
    ) -> None:
        catalogue.publish("trec", entry(9, FOREIGN))
        with pytest.raises(Conflict) as refused:
            catalogue.resolve(reference)
        assert (refused.value.code, refused.value.detail) == (FOREIGN.code, FOREIGN.detail)
        assert catalogue.resolve("trec@2").version == 2


class TestRetract:
    def test_gives_back_what_the_bank_may_drop(self, catalogue: Catalogue) -> None:
        newest = catalogue.resolve("trec")
        assert catalogue.retract("trec", [2, 77]) == [newest]
        assert catalogue.resolve("trec").version == 1

    def test_takes_aliases_along(self, catalogue: Catalogue) -> None:
        catalogue.retract("trec", [1])
        with pytest.raises(NotFound, match="alias"):
            catalogue.resolve("trec:old")

    def test_takes_the_task_with_its_last_version(self, catalogue: Catalogue) -> None:
        assert len(catalogue.retract("trec", [1, 2])) == 2
        with pytest.raises(NotFound) as missing:
            catalogue.resolve("trec")
        assert missing.value.code == "task_not_found"
        assert catalogue.current.names == ()

    def test_has_nothing_of_unknown_tasks_or_versions_that_never_ran(
        self, catalogue: Catalogue
    ) -> None:
        catalogue.publish("trec", entry(9, FOREIGN))
        assert catalogue.retract("other", [1]) == []
        assert catalogue.retract("trec", [9]) == []

    def test_readers_keep_the_snapshot_they_have(self, catalogue: Catalogue) -> None:
        before = catalogue.current
        catalogue.retract("trec", [2])
        catalogue.point(alias("prod", 1))
        assert list(before.tasks["trec"].versions) == [1, 2]
        assert list(before.tasks["trec"].aliases) == ["old"]


def test_unknown_aliases_are_skipped(catalogue: Catalogue) -> None:
    before = catalogue.current
    catalogue.unpoint("trec", "prod")
    catalogue.unpoint("other", "prod")
    assert catalogue.current is before


class TestSnapshot:
    def test_counts_what_is_served(self, catalogue: Catalogue) -> None:
        assert catalogue.current.served == 2
        catalogue.publish("trec", entry(9, FOREIGN))
        catalogue.publish("other", entry(1, task="other"))
        assert catalogue.current.served == 3
        catalogue.retract("trec", [1, 9])
        assert catalogue.current.served == 2
        catalogue.retract("trec", [2])
        assert catalogue.current.served == 1

    def test_pages_by_name(self) -> None:
        names = [f"task-{number:04}" for number in range(1, 10_001)]
        snapshot = Snapshot.of(TaskEntry.of(name, [entry(1)], []) for name in reversed(names))
        seen: list[str] = []
        after, more = None, True
        while more:
            page, more = snapshot.page(after, 300)
            seen.extend(task.task for task in page)
            after = seen[-1]
        assert seen == sorted(names)

    def test_a_page_may_follow_a_name_that_is_gone(self) -> None:
        snapshot = Snapshot.of(TaskEntry.of(name, [entry(1)], []) for name in "aceg")
        assert [task.task for task in snapshot.page("d", 1)[0]] == ["e"]
        assert snapshot.page("g", 1) == ((), False)
        assert snapshot.page("c", 2)[1] is False

    def test_keeps_names_in_order_through_changes(self) -> None:
        catalogue = Catalogue()
        for name in "dbeac":
            catalogue.publish(name, entry(1, task=name))
        assert catalogue.current.names == tuple("abcde")
        catalogue.retract("b", [1])
        assert catalogue.current.names == tuple("acde")
        assert catalogue.current.tasks.keys() == set("acde")


def test_a_summary_tells_of_the_default_version(catalogue: Catalogue) -> None:
    moved = AliasRecord("trec", "prod", 1, updated_at=START + timedelta(days=90), revision=7)
    catalogue.point(moved)
    summary = catalogue.current.tasks["trec"].summary()
    assert (summary.default_version, summary.description) == (1, "version 1")
    assert (summary.versions, summary.labels, summary.servable) == (2, 2, True)
    assert [record.alias for record in summary.aliases] == ["old", "prod"]
    assert summary.updated_at == moved.updated_at
    first, second = catalogue.current.tasks["trec"].version_summaries()
    assert (first.version, first.aliases) == (1, ("old", "prod"))
    assert (second.version, second.aliases, second.size) == (2, (), 1002)
