from datetime import UTC, datetime, timedelta

import pytest

from capsules.template import Template
from service.engine.records import Served
from service.errors import Conflict, NotFound, Unprocessable
from service.registry.catalogue import Catalogue
from service.registry.snapshot import Refusal, Snapshot, TaskEntry, VersionEntry
from service.store.base import AliasRecord, Change, ChangeKind

START = datetime(2026, 1, 1, tzinfo=UTC)
FOREIGN = Refusal("backbone_mismatch", "Version 9 cannot be served here.")


def entry(
    version: int,
    capsule: Served | Refusal | None = None,
    task: str = "trec",
    *,
    held: bool = False,
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
        held=held,
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


class TestHeld:
    @pytest.fixture
    def catalogue(self) -> Catalogue:
        """Versions 1 and 2 of `trec`, the second held."""
        catalogue = Catalogue()
        catalogue.publish("trec", entry(1))
        catalogue.publish("trec", entry(2, held=True))
        return catalogue

    def test_is_passed_over_by_the_bare_name_alone(self, catalogue: Catalogue) -> None:
        catalogue.point(alias("new", 2))
        assert catalogue.resolve("trec").version == 1
        assert catalogue.resolve("trec@2").version == 2
        assert catalogue.resolve("trec:new").version == 2

    def test_is_served_where_prod_points_at_it(self, catalogue: Catalogue) -> None:
        catalogue.point(alias("prod", 2))
        assert catalogue.resolve("trec").version == 2
        catalogue.unpoint("trec", "prod")
        assert catalogue.resolve("trec").version == 1

    def test_a_newer_version_that_is_not_is_served(self, catalogue: Catalogue) -> None:
        catalogue.publish("trec", entry(3))
        assert catalogue.resolve("trec").version == 3
        catalogue.retract("trec", [3])
        assert catalogue.resolve("trec").version == 1

    def test_all_leave_the_bare_name_without_a_meaning(self, catalogue: Catalogue) -> None:
        catalogue.retract("trec", [1])
        with pytest.raises(Conflict) as refused:
            catalogue.resolve("trec")
        assert (refused.value.code, refused.value.field) == ("no_served_version", "task")
        assert "'trec@2'" in refused.value.detail
        assert "PUT /v1/capsules/trec/aliases/prod" in refused.value.detail
        assert catalogue.resolve("trec@2").version == 2
        assert catalogue.current.served == 1

    def test_all_are_told_of_by_the_newest(self, catalogue: Catalogue) -> None:
        catalogue.publish("trec", entry(3, held=True))
        catalogue.retract("trec", [1])
        summary = catalogue.current.tasks["trec"].summary()
        assert (summary.default_version, summary.servable) == (None, False)
        assert (summary.versions, summary.labels, summary.description) == (2, 2, "version 3")
        assert [v.held for v in catalogue.current.tasks["trec"].version_summaries()] == [True] * 2

    def test_one_that_cannot_run_is_no_reason_to_serve_it(self, catalogue: Catalogue) -> None:
        catalogue.publish("trec", entry(9, FOREIGN))
        with pytest.raises(Conflict) as refused:
            catalogue.resolve("trec")
        assert refused.value.code == FOREIGN.code


class TestReflects:
    @pytest.mark.parametrize(
        ("change", "shown"),
        [
            (("version_added", 2, None, 10), True),
            (("version_added", 3, None, 10), False),
            (("version_deleted", 2, None, 10), False),
            (("version_deleted", 3, None, 10), True),
            (("alias_set", 1, "old", 5), True),
            (("alias_set", 2, "old", 4), True),  # moved again since
            (("alias_set", 2, "old", 6), False),
            (("alias_set", 1, "new", 6), False),
            (("alias_deleted", 1, "old", 6), False),
            (("alias_deleted", 1, "old", 4), True),  # set again since
            (("alias_deleted", 1, "new", 6), True),
        ],
    )
    def test_knows_what_a_change_led_to(
        self, change: tuple[ChangeKind, int, str | None, int], shown: bool
    ) -> None:
        catalogue = Catalogue()
        catalogue.publish("trec", entry(1))
        catalogue.publish("trec", entry(2))
        catalogue.point(AliasRecord("trec", "old", 1, updated_at=START, revision=5))
        kind, version, name, sequence = change
        assert catalogue.reflects(Change(sequence, kind, "trec", version, name, START)) is shown

    @pytest.mark.parametrize(
        ("kind", "shown"),
        [
            ("version_added", False),
            ("version_deleted", True),
            ("alias_set", False),
            ("alias_deleted", True),
        ],
    )
    def test_of_a_task_that_is_not_here(self, kind: ChangeKind, shown: bool) -> None:
        name = "prod" if kind.startswith("alias") else None
        assert Catalogue().reflects(Change(1, kind, "trec", 1, name, START)) is shown


class TestReplace:
    def test_moves_from_one_state_to_the_other_in_one_step(self, catalogue: Catalogue) -> None:
        first, second = catalogue.resolve("trec@1"), catalogue.resolve("trec@2")
        kept = catalogue.current.tasks["trec"].versions[2]
        there = TaskEntry.of("trec", [entry(3), kept], [alias("prod", 2)])
        assert catalogue.replace("trec", there) == [first]
        assert catalogue.current.tasks["trec"] == there
        assert catalogue.resolve("trec") is second
        assert catalogue.current.served == 2

    def test_lets_go_of_a_version_whose_number_was_given_out_twice(
        self, catalogue: Catalogue
    ) -> None:
        first = catalogue.resolve("trec@1")
        other = Served("trec", 1, "f" * 64, ("a", "b"), Template("{text}"), 16)
        gone = catalogue.replace("trec", TaskEntry.of("trec", [entry(1, other)], []))
        assert first in gone
        assert len(gone) == 2
        assert catalogue.resolve("trec") is other

    def test_takes_a_task_out_and_brings_one_in(self, catalogue: Catalogue) -> None:
        assert len(catalogue.replace("trec", None)) == 2
        assert catalogue.replace("trec", None) == []
        assert not catalogue.current.names
        assert catalogue.replace("new", TaskEntry.of("new", [entry(1, task="new")], [])) == []
        assert catalogue.current.names == ("new",)


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
