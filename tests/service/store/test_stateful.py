"""Any sequence of calls leaves the store where a plain model of it would be."""

import tempfile
from dataclasses import dataclass, field

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from service.store import Store, open_store
from service.store.errors import AliasConflict, AliasNotFound, TaskNotFound, VersionNotFound
from tests.service.store.samples import digest_of

tasks = st.sampled_from(["a", "b"])
contents = st.sampled_from([b"1", b"2", b"3"])
versions = st.integers(1, 5)
names = st.sampled_from(["prod", "canary"])
matches = st.booleans() | st.none()


@dataclass
class Model:
    """The store as two dictionaries and a list."""

    versions: dict[str, dict[int, bytes]] = field(default_factory=dict)
    aliases: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    log: list[tuple[str, str, int, str | None]] = field(default_factory=list)

    def absent(self, task: str, version: int | None = None) -> type[Exception] | None:
        if not self.versions.get(task):
            return TaskNotFound
        if version is not None and version not in self.versions[task]:
            return VersionNotFound
        return None

    def add(self, task: str, content: bytes) -> tuple[int, bool]:
        live = self.versions.setdefault(task, {})
        for number, present in live.items():
            if present == content:
                return number, False
        number = self.numbers[task] = self.numbers.get(task, 0) + 1
        live[number] = content
        self.log.append(("version_added", task, number, None))
        return number, True

    def delete(self, task: str, numbers: list[int]) -> list[str]:
        gone = sorted(
            alias for (of, alias), (at, _) in self.aliases.items() if of == task and at in numbers
        )
        for alias in gone:
            number, _ = self.aliases.pop((task, alias))
            self.log.append(("alias_deleted", task, number, alias))
        for number in numbers:
            del self.versions[task][number]
            self.log.append(("version_deleted", task, number, None))
        return gone


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store: Store = open_store(self.folder.name)
        self.model = Model()

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @initialize()
    def start(self) -> None:
        """Begin with something to work on."""
        self.add("a", b"1")
        self.add("a", b"2")

    @rule(task=tasks, content=contents)
    def add(self, task: str, content: bytes) -> None:
        record, created = self.store.add_version(
            task, digest_of(content), {"n": 1}, content, "training"
        )
        assert (record.version, created) == self.model.add(task, content)

    @rule(task=tasks, version=versions)
    def delete_version(self, task: str, version: int) -> None:
        error = self.model.absent(task, version)
        if error is not None:
            with pytest.raises(error):
                self.store.delete_version(task, version)
            return
        removal = self.store.delete_version(task, version)
        assert removal.versions == (version,)
        assert [a.alias for a in removal.aliases] == self.model.delete(task, [version])

    @rule(task=tasks)
    def delete_task(self, task: str) -> None:
        error = self.model.absent(task)
        if error is not None:
            with pytest.raises(error):
                self.store.delete_task(task)
            return
        numbers = sorted(self.model.versions[task])
        removal = self.store.delete_task(task)
        assert removal.versions == tuple(numbers)
        assert [a.alias for a in removal.aliases] == self.model.delete(task, numbers)

    @rule(task=tasks, alias=names, version=versions, match=matches)
    def set_alias(self, task: str, alias: str, version: int, match: bool | None) -> None:
        at, revision = self.model.aliases.get((task, alias), (None, 0))
        expected = None if match is None else revision if match else revision + 1
        error = self.model.absent(task, version) or (AliasConflict if match is False else None)
        if error is not None:
            with pytest.raises(error):
                self.store.set_alias(task, alias, version, expected)
            return
        record, created = self.store.set_alias(task, alias, version, expected)
        assert created is (at is None)
        if at != version:
            self.model.log.append(("alias_set", task, version, alias))
            self.model.aliases[task, alias] = (version, record.revision)
            assert record.revision > revision
        assert (record.version, record.revision) == self.model.aliases[task, alias]

    @rule(task=tasks, alias=names, match=matches)
    def delete_alias(self, task: str, alias: str, match: bool | None) -> None:
        error: type[Exception] | None = self.model.absent(task)
        at, revision = self.model.aliases.get((task, alias), (0, 0))
        expected = None if match is None else revision if match else revision + 1
        if error is None and not at:
            error = AliasNotFound
        if error is None and match is False:
            error = AliasConflict
        if error is not None:
            with pytest.raises(error):
                self.store.delete_alias(task, alias, expected)
            return
        record = self.store.delete_alias(task, alias, expected)
        assert (record.version, record.revision) == self.model.aliases.pop((task, alias))
        self.model.log.append(("alias_deleted", task, at, alias))

    @precondition(lambda self: self.model.log)
    @rule(keep=st.integers(1, 5))
    def prune(self, keep: int) -> None:
        oldest = self.store.changes_since(self.store.head_sequence() - 1)[0]
        assert oldest.sequence == len(self.model.log)
        self.store.prune(keep)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(self.folder.name)

    @invariant()
    def same(self) -> None:
        live = {task: kept for task, kept in self.model.versions.items() if kept}
        stored: dict[str, dict[int, bytes]] = {}
        for record, content in self.store.iter_artefacts():
            assert record.digest == digest_of(content)
            stored.setdefault(record.task, {})[record.version] = content
        assert stored == live
        assert {
            (a.task, a.alias): (a.version, a.revision) for a in self.store.list_aliases()
        } == self.model.aliases
        assert [
            (s.task, s.newest.version, s.versions, [a.alias for a in s.aliases])
            for s in self.store.list_tasks()
        ] == [
            (task, max(kept), len(kept), sorted(a for t, a in self.model.aliases if t == task))
            for task, kept in sorted(live.items())
        ]
        head = self.store.head_sequence()
        assert head == len(self.model.log)
        if head:
            (newest,) = self.store.changes_since(head - 1)
            assert (newest.kind, newest.task, newest.version, newest.alias) == self.model.log[-1]


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
