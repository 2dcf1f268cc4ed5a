"""Any sequence of changes, here and by others, leaves the registry where dictionaries would be."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from capsules.artefact.file import digest
from service.errors import Conflict, NotFound
from service.registry.follower import Follower
from service.registry.registry import Registry
from service.store import open_store
from tests.service.registry.samples import an_artefact, blank, put, put_trained
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine

TASKS = ("a", "b")
ALIASES = ("prod", "canary")

tasks = st.sampled_from(TASKS)
aliases = st.sampled_from(ALIASES)
seeds = st.integers(0, 3)
versions = st.integers(1, 6)

artefact_of = cache(an_artefact)


async def turn(follower: Follower) -> None:
    """Follow what there is to follow."""
    async with asyncio.TaskGroup() as group:
        await follower.turn(group)


@dataclass
class Model:
    """What a registry is, without time, threads and disks."""

    live: dict[str, dict[int, str]] = field(default_factory=dict)
    held: set[tuple[str, int]] = field(default_factory=set)
    aliases: dict[str, dict[str, int]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def upload(self, task: str, name: str) -> tuple[int, bool]:
        live = self.live.setdefault(task, {})
        for version, present in live.items():
            if present == name:
                return version, False
        self.last[task] = self.last.get(task, 0) + 1
        live[self.last[task]] = name
        return self.last[task], True

    def missing(
        self, task: str, version: int | None = None, alias: str | None = None
    ) -> str | None:
        if not self.live.get(task):
            return "task_not_found"
        if version is not None and version not in self.live[task]:
            return "version_not_found"
        if alias is not None and alias not in self.aliases.get(task, {}):
            return "alias_not_found"
        return None

    def delete(self, task: str, gone: list[int]) -> None:
        for version in gone:
            del self.live[task][version]
        pointing = self.aliases.get(task, {})
        self.aliases[task] = {name: at for name, at in pointing.items() if at not in gone}

    def default(self, task: str) -> int | None:
        released = [n for n in self.live[task] if (task, n) not in self.held]
        return self.aliases.get(task, {}).get("prod", max(released, default=None))


class RegistryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.data_dir = shutil.copytree(blank(), Path(self.folder.name) / "data")
        self.model = Model()
        self.open()

    def open(self) -> None:
        self.store = open_store(self.data_dir)
        self.other = open_store(self.data_dir)
        self.engine = FakeEngine()
        self.registry = Registry(self.store, self.engine, INFO)
        self.runner.run(self.registry.load())
        self.follower = self.registry.follower()
        self.behind = False

    def teardown(self) -> None:
        self.store.close()
        self.other.close()
        self.runner.close()
        self.folder.cleanup()

    def attempt(self, call: Coroutine[Any, Any, Any], code: str | None) -> Any:
        """Run a call, which must fail with the code, or succeed where that is None."""
        if code is None:
            return self.runner.run(call)
        with pytest.raises(NotFound) as missing:
            self.runner.run(call)
        assert missing.value.code == code
        return None

    @rule(task=tasks, seed=seeds)
    def upload(self, task: str, seed: int) -> None:
        data = artefact_of(task, seed)
        record, created = self.attempt(self.registry.upload(data), None)
        assert (record.version, created) == self.model.upload(task, digest(data))

    @rule(task=tasks, seed=seeds)
    def upload_at_once(self, task: str, seed: int) -> None:
        data = artefact_of(task, seed)

        async def both() -> list[tuple[Any, bool]]:
            return list(await asyncio.gather(*(self.registry.upload(data) for _ in range(2))))

        results = self.runner.run(both())
        version, created = self.model.upload(task, digest(data))
        assert {record.version for record, _ in results} == {version}
        assert sorted(new for _, new in results) == [False, created]

    @rule(task=tasks, version=versions)
    def delete_version(self, task: str, version: int) -> None:
        code = self.model.missing(task, version)
        removal = self.attempt(self.registry.delete_version(task, version), code)
        if code is None:
            pointing = self.model.aliases.get(task, {})
            gone = sorted(name for name, at in pointing.items() if at == version)
            assert [alias.alias for alias in removal.aliases] == gone
            self.model.delete(task, [version])

    @rule(task=tasks)
    def delete_task(self, task: str) -> None:
        code = self.model.missing(task)
        self.attempt(self.registry.delete_task(task), code)
        if code is None:
            self.model.delete(task, list(self.model.live[task]))

    @rule(task=tasks, alias=aliases, version=versions)
    def set_alias(self, task: str, alias: str, version: int) -> None:
        code = self.model.missing(task, version)
        self.attempt(self.registry.set_alias(task, alias, version), code)
        if code is None:
            self.model.aliases.setdefault(task, {})[alias] = version

    @rule(task=tasks, alias=aliases)
    def delete_alias(self, task: str, alias: str) -> None:
        code = self.model.missing(task, alias=alias)
        self.attempt(self.registry.delete_alias(task, alias), code)
        if code is None:
            del self.model.aliases[task][alias]

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.other.close()
        self.open()

    # --- another writer, of which the registry learns when it follows -------------------------

    @rule(task=tasks, seed=seeds)
    def other_adds(self, task: str, seed: int) -> None:
        data = artefact_of(task, seed)
        version, _ = self.model.upload(task, digest(data))
        assert put(self.other, data, task).version == version
        self.behind = True

    @rule(task=tasks, seed=seeds)
    def other_adds_held(self, task: str, seed: int) -> None:
        data = artefact_of(task, seed)
        if digest(data) in self.model.live.get(task, {}).values():
            return
        version, _ = self.model.upload(task, digest(data))
        self.model.held.add((task, version))
        assert put_trained(self.other, data, task, held=True).version == version
        self.behind = True

    @rule(task=tasks, version=versions)
    def other_deletes(self, task: str, version: int) -> None:
        if self.model.missing(task, version) is None:
            self.other.delete_version(task, version)
            self.model.delete(task, [version])
            self.behind = True

    @rule(task=tasks)
    def other_deletes_task(self, task: str) -> None:
        if self.model.missing(task) is None:
            self.other.delete_task(task)
            self.model.delete(task, list(self.model.live[task]))
            self.behind = True

    @rule(task=tasks, alias=aliases, version=versions)
    def other_sets_alias(self, task: str, alias: str, version: int) -> None:
        if self.model.missing(task, version) is None:
            self.other.set_alias(task, alias, version)
            self.model.aliases.setdefault(task, {})[alias] = version
            self.behind = True

    @rule()
    def other_prunes(self) -> None:
        self.other.prune(1)

    @rule()
    def follow(self) -> None:
        self.runner.run(turn(self.follower))
        assert self.follower.lag() < 1
        self.behind = False

    @invariant()
    def resolves_like_the_model(self) -> None:
        if self.behind:
            return
        for task in TASKS:
            live = self.model.live.get(task, {})
            pointing = self.model.aliases.get(task, {})
            expected = {f"{task}@{version}": version for version in live}
            expected |= {f"{task}:{alias}": version for alias, version in pointing.items()}
            default = self.model.default(task) if live else None
            if default is not None:
                expected[task] = default
            absent = {task, *(f"{task}@{n}" for n in range(1, 7))}
            absent |= {f"{task}:{alias}" for alias in ALIASES}
            for reference, version in expected.items():
                served = self.registry.resolve(reference)
                assert (served.task, served.version) == (task, version)
                assert served.digest == live[version]
            for reference in absent - expected.keys():
                missing = Conflict if self.model.live.get(reference) else NotFound
                with pytest.raises(missing):
                    self.registry.resolve(reference)

    @invariant()
    def holds_what_is_live_and_nothing_else(self) -> None:
        live = sorted(
            (t, v, d) for t, of_task in self.model.live.items() for v, d in of_task.items()
        )
        stored = [(r.task, r.version, r.digest) for r, _ in self.store.iter_artefacts()]
        assert stored == live
        if self.behind:
            return
        resident = sorted((s.task, s.version, s.digest) for s in self.engine.bank.resident)
        assert resident == live
        assert self.registry.served == len(live)

    @invariant()
    def lists_like_the_model(self) -> None:
        if self.behind:
            return
        page = self.runner.run(self.registry.list_tasks())
        assert [
            (s.task, s.default_version, s.versions, {a.alias: a.version for a in s.aliases})
            for s in page.tasks
        ] == [
            (task, self.model.default(task), len(live), self.model.aliases.get(task, {}))
            for task, live in sorted(self.model.live.items())
            if live
        ]


TestRegistryMachine = RegistryMachine.TestCase
TestRegistryMachine.settings = settings(
    max_examples=15, stateful_step_count=25, deadline=None, derandomize=True
)
