"""Versions change under traffic: no row fails, and each answer is that of the version it names."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import torch

from capsules.artefact.file import Capsule, digest, dump
from capsules.artefact.manifest import Golden
from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.core import TokenBatch
from capsules.executors.torch import TorchExecutor
from capsules.injection import PromptGroup, Prompts
from capsules.variants.registry import variant
from service.engine.config import EngineConfig
from service.engine.engine import Engine
from service.engine.observer import SilentObserver
from service.engine.records import RowAnswer, RowRequest
from service.errors import Unprocessable
from service.registry.follower import following
from service.registry.registry import Registry
from service.store import Store, open_store
from tests.service.registry.samples import put, until
from tests.support.backbones import words
from tests.support.capsules import random_capsule

TASKS = {"a": 2, "b": 3, "c": 3, "d": 7}
VERSIONS_OF_EACH = 6
TEXTS = tuple(words(count, first=count) for count in (1, 3, 4, 9, 17, 30))
SWAPS = 100
TOLERANCE = 1e-4
CLIENTS = 6


class Oracle:
    """Answers one text at a time on a backbone of its own: no bank, no batch, no padding."""

    def __init__(self, loaded: LoadedBackbone) -> None:
        self.tokeniser = loaded.tokeniser
        self.executor = TorchExecutor(loaded.backbone)

    def probs(self, capsule: Capsule, text: str) -> list[float]:
        (encoding,) = self.tokeniser.encode([text], capsule.manifest.max_length - 1)
        ids = torch.tensor([encoding.input_ids])
        group = PromptGroup(
            variant(capsule.manifest.variant),
            1,
            capsule.manifest.injected,
            {"capsule": capsule.tensors["capsule"][None]},
        )
        (features,) = self.executor.features(
            TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool)), Prompts((group,))
        )
        logits = capsule.tensors["head.weight"] @ features + capsule.tensors["head.bias"]
        answer: list[float] = logits.softmax(dim=0).tolist()
        return answer

    def with_golden(self, capsule: Capsule) -> Capsule:
        """The capsule as a trainer would have written it."""
        golden = []
        for text in TEXTS[:2]:
            probs = self.probs(capsule, text)
            label = capsule.manifest.labels[probs.index(max(probs))]
            golden.append(Golden(inputs={"text": text}, label=label, probs=probs))
        manifest = capsule.manifest.model_copy(update={"golden": golden})
        return Capsule(manifest, capsule.tensors)


class Bench:
    """Artefacts to swap, and what each of them answers to each text, by digest."""

    def __init__(self, loaded: LoadedBackbone) -> None:
        oracle = Oracle(load(str(loaded.info.path), device="cpu", dtype="float32"))
        self.files: dict[str, list[bytes]] = {task: [] for task in TASKS}
        self.answers: dict[str, dict[str, list[float]]] = {}
        for number, (task, labels) in enumerate(TASKS.items()):
            for version in range(VERSIONS_OF_EACH):
                seed = 100 * number + version
                capsule = random_capsule(loaded.info, task=task, labels=labels, seed=seed)
                data = dump(oracle.with_golden(capsule))
                self.files[task].append(data)
                self.answers[digest(data)] = {text: oracle.probs(capsule, text) for text in TEXTS}

    def smallest_difference(self) -> float:
        """How far apart any two versions of a task are at least, on the text that tells most."""
        return min(
            max(
                abs(p - q)
                for text in TEXTS
                for p, q in zip(self.answers[one][text], self.answers[other][text], strict=True)
            )
            for files in self.files.values()
            for one, other in itertools.combinations(map(digest, files), 2)
        )


@pytest.fixture(scope="module")
def bench(tiny: LoadedBackbone) -> Iterator[Bench]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more of them only wait for each other on a model this small
    yield Bench(tiny)
    torch.set_num_threads(threads)


@pytest.fixture(params=[1000, 4], ids=["resident", "paging"])
async def engine(request: pytest.FixtureRequest, tiny: LoadedBackbone) -> AsyncIterator[Engine]:
    config = EngineConfig(threads=1, max_batch_rows=2, bank_slots=request.param)
    engine = Engine(tiny, TorchExecutor(tiny.backbone), config, SilentObserver())
    await engine.start()
    yield engine
    await engine.stop()


class Client:
    """Classifies until told to stop, and checks every answer."""

    def __init__(self, registry: Registry, engine: Engine, bench: Bench, seed: int) -> None:
        self.registry = registry
        self.engine = engine
        self.bench = bench
        self.random = random.Random(seed)
        self.rows = 0
        self.seen: set[str] = set()

    async def run(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            texts = self.random.choices(TEXTS, k=self.random.randint(1, 6))
            references = [self.reference() for _ in texts]
            rows = [
                RowRequest(self.registry.resolve(reference), {"text": text})
                for reference, text in zip(references, texts, strict=True)
            ]
            outcome = await self.engine.classify(rows, timeout=30.0)
            for row, text, answer in zip(rows, texts, outcome.rows, strict=True):
                self.check(row, text, answer)

    def reference(self) -> str:
        """A name that is there whatever happens: each task keeps its first version."""
        return self.random.choice(sorted(TASKS)) + self.random.choice(["", "", "@1"])

    def check(self, row: RowRequest, text: str, answer: object) -> None:
        assert isinstance(answer, RowAnswer), answer
        expected = self.bench.answers[row.capsule.digest][text]
        assert list(answer.probs) == pytest.approx(expected, abs=TOLERANCE)
        self.rows += 1
        self.seen.add(row.capsule.digest)


class Swapper:
    """Makes random changes, none of which may fail."""

    def __init__(self, registry: Registry, bench: Bench) -> None:
        self.registry = registry
        self.bench = bench
        self.random = random.Random(7)
        self.made: list[str] = []

    async def swap(self) -> None:
        task = self.random.choice(sorted(TASKS))
        changes = {
            "upload": partial(self.upload, task),
            "roll back": partial(self.delete, task, newest=True),
            "delete": partial(self.delete, task, newest=False),
            "alias": partial(self.alias, task),
        }
        name = self.random.choices(list(changes), weights=[5, 2, 2, 2])[0]
        if await changes[name]():
            self.made.append(name)

    async def upload(self, task: str) -> bool:
        await self.registry.upload(self.random.choice(self.bench.files[task]))
        return True

    async def delete(self, task: str, newest: bool) -> bool:
        versions = await self.versions(task)
        if not versions:
            return False
        chosen = versions[-1] if newest else self.random.choice(versions)
        await self.registry.delete_version(task, chosen)
        return True

    async def alias(self, task: str) -> bool:
        detail = await self.registry.describe(task)
        if detail.summary.aliases and self.random.random() < 0.5:
            await self.registry.delete_alias(task, "prod")
        else:
            versions = [version.version for version in detail.versions]
            await self.registry.set_alias(task, "prod", self.random.choice(versions))
        return True

    async def versions(self, task: str) -> Sequence[int]:
        """All but the first."""
        detail = await self.registry.describe(task)
        return [version.version for version in detail.versions if version.version > 1]


def test_the_versions_can_be_told_apart(bench: Bench) -> None:
    assert bench.smallest_difference() > 10 * TOLERANCE


async def test_a_hundred_swaps_under_load(
    store: Store, engine: Engine, tiny: LoadedBackbone, bench: Bench
) -> None:
    registry = Registry(store, engine, tiny.info)
    await registry.load()
    for files in bench.files.values():
        await registry.upload(files[0])
    stopped = asyncio.Event()
    clients = [Client(registry, engine, bench, seed) for seed in range(CLIENTS)]
    swapper = Swapper(registry, bench)
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.run(stopped))
        while len(swapper.made) < SWAPS:
            await swapper.swap()
        stopped.set()
    assert set(swapper.made) == {"upload", "roll back", "delete", "alias"}
    assert sum(client.rows for client in clients) > SWAPS
    assert len(set().union(*(client.seen for client in clients))) > 2 * len(TASKS)
    stats = engine.bank.stats()
    live = len(list(store.iter_artefacts()))
    assert (stats.resident + stats.host, stats.pinned) == (live, 0)
    assert registry.served == live


class OtherServer:
    """Makes random changes straight in the database; each task keeps its first version."""

    def __init__(self, store: Store, bench: Bench) -> None:
        self.store = store
        self.bench = bench
        self.random = random.Random(11)

    def change(self) -> None:
        task = self.random.choice(sorted(TASKS))
        later = [v.version for v in self.store.list_versions(task) if v.version > 1]
        choice = self.random.random()
        if choice < 0.5 or not later:
            data = self.random.choice(self.bench.files[task])
            put(self.store, data, task)
        elif choice < 0.75:
            self.store.delete_version(task, self.random.choice(later))
        else:
            self.store.set_alias(task, "prod", self.random.choice([1, *later]))


async def test_swaps_by_another_server_under_load(
    store: Store, data_dir: Path, engine: Engine, tiny: LoadedBackbone, bench: Bench
) -> None:
    for task, files in bench.files.items():
        put(store, files[0], task)
    registry = Registry(store, engine, tiny.info)
    await registry.load()
    stopped = asyncio.Event()
    clients = [Client(registry, engine, bench, seed) for seed in range(CLIENTS)]
    with closing(open_store(data_dir)) as other_store:
        other = OtherServer(other_store, bench)
        async with following(registry.follower(interval_s=0.01)), asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run(stopped))
            for _ in range(SWAPS // 2):
                await asyncio.to_thread(other.change)
            await until(lambda: registry.reconciler.survey() == [])
            stopped.set()
    assert sum(client.rows for client in clients) > SWAPS // 2
    assert len(set().union(*(client.seen for client in clients))) > 2 * len(TASKS)
    stats = engine.bank.stats()
    live = len(list(store.iter_artefacts()))
    assert (stats.resident + stats.host, stats.pinned) == (live, 0)
    assert registry.served == live


async def test_everything_goes_and_nothing_is_left(
    store: Store, engine: Engine, tiny: LoadedBackbone, bench: Bench
) -> None:
    registry = Registry(store, engine, tiny.info)
    await registry.load()
    for _ in range(2):
        for files in bench.files.values():
            await asyncio.gather(*(registry.upload(data) for data in files[:3]))
        for task in TASKS:
            await registry.delete_task(task)
    stats = engine.bank.stats()
    assert (stats.resident, stats.host, stats.pinned, stats.host_bytes) == (0, 0, 0, 0)


async def test_a_capsule_that_answers_otherwise_is_refused_and_forgotten(
    store: Store, engine: Engine, tiny: LoadedBackbone, bench: Bench
) -> None:
    registry = Registry(store, engine, tiny.info)
    await registry.load()
    await registry.upload(bench.files["a"][0])
    before = engine.bank.stats()
    capsule = random_capsule(tiny.info, task="a", labels=2, seed=5)
    wrong = Golden(inputs={"text": TEXTS[0]}, label="label-0", probs=[0.5, 0.5])
    manifest = capsule.manifest.model_copy(update={"golden": [wrong]})
    with pytest.raises(Unprocessable) as refused:
        await registry.upload(dump(Capsule(manifest, capsule.tensors)))
    assert refused.value.code == "golden_mismatch"
    after = engine.bank.stats()
    assert (after.resident, after.host, after.pinned) == (1, 0, 0)
    assert after.host_bytes == before.host_bytes
    assert registry.resolve("a").digest == digest(bench.files["a"][0])
