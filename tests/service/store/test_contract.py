"""What every implementation of the store promises."""

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import pytest

from service.store import Store, open_store
from service.store.base import Extent
from service.store.errors import (
    AliasConflict,
    AliasNotFound,
    ChangesUnavailable,
    InvalidValue,
    NotFound,
    StoreUnavailable,
    TaskNotFound,
    VersionNotFound,
)
from tests.service.store.samples import MANIFEST, add, digest_of

T = TypeVar("T")


def together(calls: list[Callable[[], T]]) -> list[T]:
    """Run the calls at the same moment, each in its own thread."""
    barrier = threading.Barrier(len(calls))

    def started(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(started, calls))


def log_of(store: Store) -> list[tuple[int, str, str, int, str | None]]:
    return [(c.sequence, c.kind, c.task, c.version, c.alias) for c in store.changes_since(0)]


class TestAddVersion:
    def test_returns_what_was_stored(self, store: Store) -> None:
        before = datetime.now(UTC)
        record, created = store.add_version("spam", digest_of(b"one"), MANIFEST, b"one", "zoo")
        assert created
        assert (record.task, record.version, record.size) == ("spam", 1, 3)
        assert record.digest == digest_of(b"one")
        assert record.manifest == MANIFEST
        assert record.source == "zoo"
        assert (record.held, record.job) == (False, None)
        assert record.created_at.utcoffset() == timedelta(0)
        assert before <= record.created_at <= datetime.now(UTC)

    def test_is_read_back_the_same(self, store: Store) -> None:
        record = add(store)
        assert store.get_version("spam", 1) == record
        assert store.artefact("spam", 1) == b"one"

    def test_survives_reopening(self, store: Store, location: str) -> None:
        record = add(store)
        store.close()
        with closing(open_store(location)) as again:
            assert again.list_versions("spam") == [record]
            assert again.artefact("spam", 1) == b"one"
            assert [c.kind for c in again.changes_since(0)] == ["version_added"]

    def test_numbers_each_task_from_one(self, store: Store) -> None:
        numbers = [
            add(store, task, content).version
            for task, content in [("a", b"1"), ("a", b"2"), ("b", b"1"), ("a", b"3")]
        ]
        assert numbers == [1, 2, 1, 3]

    def test_same_bytes_give_the_version_there_is(self, store: Store) -> None:
        first = add(store, source="zoo")
        head = store.head_sequence()
        again, created = store.add_version("spam", first.digest, {}, b"one", "upload")
        assert (again, created) == (first, False)
        assert store.head_sequence() == head

    def test_same_bytes_under_another_task_are_another_version(self, store: Store) -> None:
        add(store, "a")
        assert add(store, "b").task == "b"
        assert len(store.list_tasks()) == 2

    def test_same_bytes_after_deletion_are_a_new_version(self, store: Store) -> None:
        add(store)
        store.delete_version("spam", 1)
        assert add(store).version == 2

    def test_manifest_comes_back_as_json_would(self, store: Store) -> None:
        record = add(store, manifest={"labels": ("a", "b")})
        assert record.manifest == {"labels": ["a", "b"]}
        assert store.get_version("spam", 1) == record

    @pytest.mark.parametrize("content", [b"", b"\x00\xff" * 500_000], ids=["empty", "large"])
    def test_bytes_are_kept_as_they_are(self, store: Store, content: bytes) -> None:
        assert add(store, artefact=content).size == len(content)
        assert store.artefact("spam", 1) == content

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"digest": digest_of(b"two")}, "digest"),
            ({"digest": digest_of(b"one").upper()}, "digest"),
            ({"source": "stranger"}, "source"),
            ({"manifest": {"score": float("nan")}}, "manifest"),
            ({"manifest": {"when": datetime.now(UTC)}}, "manifest"),
            ({"task": ""}, "name_length"),
            ({"task": "x" * 64}, "name_length"),
            ({"task": "\ud800"}, "surrogates"),
        ],
    )
    def test_refuses_what_cannot_be_kept(
        self, store: Store, change: dict[str, Any], named: str
    ) -> None:
        arguments = {
            "task": "spam",
            "digest": digest_of(b"one"),
            "manifest": MANIFEST,
            "artefact": b"one",
            "source": "upload",
        }
        with pytest.raises(InvalidValue, match=named):
            store.add_version(**(arguments | change))
        assert store.list_tasks() == []
        assert store.head_sequence() == 0

    def test_records_are_immutable(self, store: Store) -> None:
        record = add(store)
        with pytest.raises(FrozenInstanceError):
            record.version = 2  # type: ignore[misc]

    def test_threads_get_distinct_numbers(self, store: Store) -> None:
        records = together([partial(add, store, artefact=b"%d" % n) for n in range(8)])
        assert sorted(record.version for record in records) == list(range(1, 9))
        assert [v.version for v in store.list_versions("spam")] == list(range(1, 9))
        for record in records:
            assert digest_of(store.artefact("spam", record.version)) == record.digest
        assert [entry[0] for entry in log_of(store)] == list(range(1, 9))

    def test_same_bytes_at_the_same_time_are_stored_once(self, store: Store) -> None:
        answers = together(
            [lambda: store.add_version("spam", digest_of(b"one"), {}, b"one", "upload")] * 8
        )
        assert sorted(created for _, created in answers) == [False] * 7 + [True]
        assert len({record.version for record, _ in answers}) == 1
        assert len(store.list_versions("spam")) == 1

    def test_two_stores_share_a_database(self, store: Store, location: str) -> None:
        with closing(open_store(location)) as other:
            records = together(
                [partial(add, (store, other)[n % 2], artefact=b"%d" % n) for n in range(8)]
            )
            assert sorted(record.version for record in records) == list(range(1, 9))
            assert store.list_versions("spam") == other.list_versions("spam")


class TestLookups:
    @pytest.mark.parametrize("version", [0, -1, 2, 2**31, 2**63, 2**200])
    def test_unknown_version(self, store: Store, version: int) -> None:
        add(store)
        for call in (store.get_version, store.artefact, store.evaluation, store.delete_version):
            with pytest.raises(VersionNotFound) as caught:
                call("spam", version)
            assert (caught.value.task, caught.value.version) == ("spam", version)

    @pytest.mark.parametrize("gone", [False, True], ids=["never was", "deleted"])
    def test_unknown_task(self, store: Store, gone: bool) -> None:
        if gone:
            add(store)
            store.delete_task("spam")
        calls: list[Callable[[], object]] = [
            lambda: store.get_version("spam", 1),
            lambda: store.artefact("spam", 1),
            lambda: store.evaluation("spam", 1),
            lambda: store.list_versions("spam"),
            lambda: store.delete_version("spam", 1),
            lambda: store.delete_task("spam"),
            lambda: store.get_alias("spam", "prod"),
            lambda: store.list_aliases("spam"),
            lambda: store.set_alias("spam", "prod", 1),
            lambda: store.delete_alias("spam", "prod"),
        ]
        head = store.head_sequence()
        for call in calls:
            with pytest.raises(TaskNotFound, match="'spam'") as caught:
                call()
            assert isinstance(caught.value, NotFound)
        assert store.head_sequence() == head

    def test_nobody_measured_what_was_uploaded(self, store: Store) -> None:
        add(store)
        assert store.evaluation("spam", 1) is None

    def test_versions_are_listed_in_order(self, store: Store) -> None:
        records = [add(store, artefact=b"%d" % n) for n in range(12)]
        assert store.list_versions("spam") == records


class TestListTasks:
    def test_pages_by_name(self, store: Store) -> None:
        names = ["b", "a.1", "a", "a-b", "a_b", "z9"]
        for name in names:
            add(store, name)
        seen: list[str] = []
        while page := store.list_tasks(after=seen[-1] if seen else None, limit=2):
            assert len(page) <= 2
            seen += [summary.task for summary in page]
        assert seen == sorted(names)

    def test_summarises_live_versions(self, store: Store) -> None:
        *_, newest = [add(store, artefact=content) for content in (b"1", b"2", b"3", b"4")]
        store.delete_version("spam", 2)
        prod, _ = store.set_alias("spam", "prod", 1)
        canary, _ = store.set_alias("spam", "canary", 4)
        other = add(store, "other")
        first, second = store.list_tasks()
        assert (first.task, first.newest, first.versions, first.aliases) == ("other", other, 1, ())
        assert (second.newest, second.versions) == (newest, 3)
        assert second.aliases == (canary, prod)

    def test_leaves_out_deleted_tasks(self, store: Store) -> None:
        add(store, "a")
        add(store, "b")
        store.delete_task("a")
        store.delete_version("b", 1)
        assert store.list_tasks() == []

    @pytest.mark.parametrize("limit", [0, -1])
    def test_refuses_an_empty_page(self, store: Store, limit: int) -> None:
        with pytest.raises(InvalidValue, match="limit"):
            store.list_tasks(limit=limit)


class TestDelete:
    def test_a_version(self, store: Store) -> None:
        add(store)
        kept = add(store, artefact=b"two")
        removal = store.delete_version("spam", 1)
        assert (removal.versions, removal.aliases) == ((1,), ())
        assert store.list_versions("spam") == [kept]
        with pytest.raises(VersionNotFound):
            store.artefact("spam", 1)

    def test_takes_the_aliases_that_point_at_it(self, store: Store) -> None:
        add(store)
        add(store, artefact=b"two")
        kept, _ = store.set_alias("spam", "old", 1)
        gone = [store.set_alias("spam", name, 2)[0] for name in ("prod", "canary")]
        removal = store.delete_version("spam", 2)
        assert removal.aliases == (gone[1], gone[0])
        assert store.list_aliases("spam") == [kept]
        assert log_of(store)[-3:] == [
            (6, "alias_deleted", "spam", 2, "canary"),
            (7, "alias_deleted", "spam", 2, "prod"),
            (8, "version_deleted", "spam", 2, None),
        ]

    def test_a_task(self, store: Store) -> None:
        for content in (b"1", b"2", b"3"):
            add(store, artefact=content)
        store.delete_version("spam", 2)
        alias, _ = store.set_alias("spam", "prod", 3)
        other = add(store, "other")
        removal = store.delete_task("spam")
        assert (removal.versions, removal.aliases) == ((1, 3), (alias,))
        assert [record for record, _ in store.iter_artefacts()] == [other]
        assert store.list_aliases() == []
        assert [entry[1:] for entry in log_of(store)[-3:]] == [
            ("alias_deleted", "spam", 3, "prod"),
            ("version_deleted", "spam", 1, None),
            ("version_deleted", "spam", 3, None),
        ]

    @pytest.mark.parametrize("whole_task", [False, True])
    def test_never_gives_a_number_again(
        self, store: Store, location: str, whole_task: bool
    ) -> None:
        add(store)
        add(store, artefact=b"two")
        if whole_task:
            store.delete_task("spam")
        else:
            store.delete_version("spam", 2)
        store.close()
        with closing(open_store(location)) as again:
            assert add(again, artefact=b"three").version == 3

    def test_one_of_many_deleters_wins(self, store: Store) -> None:
        add(store)

        def delete() -> bool:
            try:
                store.delete_version("spam", 1)
            except NotFound:
                return False
            return True

        assert sorted(together([delete] * 6)) == [False] * 5 + [True]
        assert [entry[1] for entry in log_of(store)] == ["version_added", "version_deleted"]


class TestAliases:
    @pytest.fixture(autouse=True)
    def versions(self, store: Store) -> None:
        add(store)
        add(store, artefact=b"two")

    def test_set_and_move(self, store: Store) -> None:
        first, created = store.set_alias("spam", "prod", 1)
        assert created
        assert (first.task, first.alias, first.version) == ("spam", "prod", 1)
        assert first.updated_at.utcoffset() == timedelta(0)
        assert store.get_alias("spam", "prod") == first
        second, created = store.set_alias("spam", "prod", 2)
        assert not created
        assert second.version == 2
        assert second.revision > first.revision
        assert store.list_aliases("spam") == [second]

    def test_setting_what_is_set_changes_nothing(self, store: Store) -> None:
        first, _ = store.set_alias("spam", "prod", 1)
        head = store.head_sequence()
        assert store.set_alias("spam", "prod", 1, first.revision) == (first, False)
        assert store.head_sequence() == head

    def test_lists_by_task_and_name(self, store: Store) -> None:
        add(store, "ads")
        for task, alias in [("spam", "prod"), ("spam", "canary"), ("ads", "prod")]:
            store.set_alias(task, alias, 1)
        assert [(a.task, a.alias) for a in store.list_aliases()] == [
            ("ads", "prod"),
            ("spam", "canary"),
            ("spam", "prod"),
        ]
        assert [a.alias for a in store.list_aliases("spam")] == ["canary", "prod"]

    def test_move_only_from_the_expected_revision(self, store: Store) -> None:
        first, _ = store.set_alias("spam", "prod", 1, 0)
        moved, _ = store.set_alias("spam", "prod", 2, first.revision)
        for expected in (0, first.revision, moved.revision + 1):
            with pytest.raises(AliasConflict) as caught:
                store.set_alias("spam", "prod", 1, expected)
            assert (caught.value.expected, caught.value.actual) == (expected, moved.revision)
            with pytest.raises(AliasConflict):
                store.delete_alias("spam", "prod", expected)
        assert store.get_alias("spam", "prod") == moved

    def test_expecting_one_that_is_not_set(self, store: Store) -> None:
        with pytest.raises(AliasConflict) as caught:
            store.set_alias("spam", "prod", 1, 7)
        assert (caught.value.expected, caught.value.actual) == (7, 0)
        assert store.list_aliases() == []

    def test_delete(self, store: Store) -> None:
        alias, _ = store.set_alias("spam", "prod", 1)
        assert store.delete_alias("spam", "prod", alias.revision) == alias
        for call in (store.get_alias, store.delete_alias):
            with pytest.raises(AliasNotFound, match="'prod'"):
                call("spam", "prod")
        assert log_of(store)[-1][1:] == ("alias_deleted", "spam", 1, "prod")

    def test_revision_grows_over_deletion(self, store: Store) -> None:
        first, _ = store.set_alias("spam", "prod", 1)
        store.delete_alias("spam", "prod")
        store.prune(keep=1)
        again, created = store.set_alias("spam", "prod", 1)
        assert created
        assert again.revision > first.revision

    @pytest.mark.parametrize("version", [0, 3, 2**70])
    def test_refuses_an_unknown_version(self, store: Store, version: int) -> None:
        with pytest.raises(VersionNotFound):
            store.set_alias("spam", "prod", version)
        assert store.list_aliases() == []

    @pytest.mark.parametrize("alias", ["", "x" * 64])
    def test_refuses_a_name_out_of_bounds(self, store: Store, alias: str) -> None:
        with pytest.raises(InvalidValue, match="alias_length"):
            store.set_alias("spam", alias, 1)

    def test_one_of_many_movers_wins(self, store: Store) -> None:
        start, _ = store.set_alias("spam", "prod", 1)

        def move() -> bool:
            try:
                store.set_alias("spam", "prod", 2, start.revision)
            except AliasConflict:
                return False
            return True

        assert sorted(together([move] * 6)) == [False] * 5 + [True]


class TestIterArtefacts:
    def test_gives_all_in_order(self, store: Store) -> None:
        expected = [
            (add(store, task, content), content)
            for task in ("a", "b", "c")
            for content in (b"1", b"2")
        ]
        assert list(store.iter_artefacts()) == expected

    def test_empty(self, store: Store) -> None:
        assert list(store.iter_artefacts()) == []

    def test_holds_few_in_memory(self, store: Store) -> None:
        count, size = 80, 200_000
        for number in range(count):
            add(store, artefact=number.to_bytes(2, "big") * (size // 2))
        tracemalloc.start()
        try:
            total = sum(len(content) for _, content in store.iter_artefacts())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert total == count * size
        assert peak < total / 2

    def test_sees_one_snapshot_while_others_write(self, store: Store) -> None:
        for content in (b"1", b"2"):
            add(store, artefact=content)
        stream = store.iter_artefacts()
        seen = [next(stream)]
        store.delete_task("spam")
        add(store, "later")
        seen += stream
        assert [content for _, content in seen] == [b"1", b"2"]
        assert [record.task for record, _ in store.iter_artefacts()] == ["later"]

    def test_may_be_abandoned(self, store: Store) -> None:
        add(store)
        for _ in range(50):  # more than there are connections
            stream: Iterator[object] = store.iter_artefacts()
            next(stream)
            del stream
        assert add(store, artefact=b"two").version == 2


class TestExtent:
    def test_counts_live_versions_and_their_bytes(self, store: Store) -> None:
        assert store.extent() == Extent(versions=0, size=0)
        for task, content in (("a", b"one"), ("a", b"three"), ("b", b"seventh")):
            store.add_version(task, digest_of(content), MANIFEST, content, "upload")
        assert store.extent() == Extent(versions=3, size=15)
        store.delete_version("a", 2)
        assert store.extent() == Extent(versions=2, size=10)


class TestChanges:
    def test_log_tells_everything_in_order(self, store: Store) -> None:
        assert (store.head_sequence(), store.changes_since(0)) == (0, [])
        add(store)
        store.set_alias("spam", "prod", 1)
        store.delete_alias("spam", "prod")
        store.delete_version("spam", 1)
        assert log_of(store) == [
            (1, "version_added", "spam", 1, None),
            (2, "alias_set", "spam", 1, "prod"),
            (3, "alias_deleted", "spam", 1, "prod"),
            (4, "version_deleted", "spam", 1, None),
        ]
        assert store.head_sequence() == 4
        times = [change.at for change in store.changes_since(0)]
        assert times == sorted(times)
        assert all(time.utcoffset() == timedelta(0) for time in times)

    def test_follow_in_steps(self, store: Store) -> None:
        for number in range(7):
            add(store, artefact=b"%d" % number)
        seen: list[int] = []
        while changes := store.changes_since(seen[-1] if seen else 0, limit=3):
            assert len(changes) <= 3
            seen += [change.sequence for change in changes]
        assert seen == list(range(1, 8))

    def test_failed_call_logs_nothing(self, store: Store) -> None:
        add(store)
        with pytest.raises(InvalidValue):
            store.set_alias("spam", "x" * 64, 1)
        assert store.head_sequence() == 1
        store.set_alias("spam", "prod", 1)
        assert store.head_sequence() == 2

    def test_prune(self, store: Store) -> None:
        for number in range(6):
            add(store, artefact=b"%d" % number)
        assert store.prune(keep=10) == 0
        assert store.prune(keep=2) == 4
        assert store.head_sequence() == 6
        assert [change.sequence for change in store.changes_since(4)] == [5, 6]
        assert store.changes_since(6) == []
        with pytest.raises(ChangesUnavailable) as caught:
            store.changes_since(3)
        assert (caught.value.after, caught.value.oldest, caught.value.head) == (3, 5, 6)
        add(store, artefact=b"next")
        assert store.head_sequence() == 7

    @pytest.mark.parametrize("sequence", [-1, 2, 2**70])
    def test_refuses_a_sequence_outside_the_log(self, store: Store, sequence: int) -> None:
        add(store)
        with pytest.raises(ChangesUnavailable):
            store.changes_since(sequence)

    def test_refuses_counts_below_one(self, store: Store) -> None:
        with pytest.raises(InvalidValue, match="limit"):
            store.changes_since(0, limit=0)
        with pytest.raises(InvalidValue, match="keep"):
            store.prune(keep=0)

    def test_follower_misses_nothing_under_load(self, store: Store) -> None:
        """A reader that polls while writers commit sees each number, in order, once."""
        total, seen = 40, [0]

        def write(worker: int) -> None:
            for number in range(total // 4):
                add(store, f"task-{worker}", b"%d" % number)

        def follow() -> None:
            while seen[-1] < total:
                seen.extend(change.sequence for change in store.changes_since(seen[-1]))

        writers: list[Callable[[], None]] = [partial(write, worker) for worker in range(4)]
        together([follow, *writers])
        assert seen == list(range(total + 1))


class TestMarks:
    def test_unknown_is_none(self, store: Store) -> None:
        assert store.marked("zoo") is None

    def test_last_value_stays(self, store: Store, location: str) -> None:
        store.mark("zoo", "1")
        store.mark("zoo", "2")
        store.close()
        with closing(open_store(location)) as again:
            assert again.marked("zoo") == "2"

    @pytest.mark.parametrize("key", ["", "k" * 64])
    def test_refuses_a_key_out_of_bounds(self, store: Store, key: str) -> None:
        with pytest.raises(InvalidValue, match="key_length"):
            store.mark(key, "1")


class TestLife:
    def test_ping_answers(self, store: Store) -> None:
        store.ping()

    def test_closed_is_unavailable(self, store: Store) -> None:
        store.close()
        store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            store.ping()
