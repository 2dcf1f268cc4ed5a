"""Capsules for the registry's tests, and looks at everything a change may touch."""

import asyncio
import atexit
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from capsules.artefact.file import Capsule, digest, dump, parse
from capsules.artefact.manifest import Golden
from service.engine.records import RowRequest, Served
from service.errors import ServiceError
from service.registry.ports import CapsuleEngine
from service.registry.registry import Registry
from service.store import Store, open_store
from service.store.additions import add, evaluate
from service.store.base import VersionRecord
from tests.support.capsules import random_capsule
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine, probabilities

OTHER_FINGERPRINT = "b" * 64
JOB = "ftjob-" + "0" * 24


def a_capsule(
    task: str = "trec",
    seed: int = 0,
    *,
    labels: Sequence[str] = ("no", "yes"),
    fingerprint: str = INFO.fingerprint,
    golden: Sequence[dict[str, Any]] | None = None,
) -> Capsule:
    """A capsule whose weights depend on the seed; golden as a fake engine answers."""
    info = replace(INFO, fingerprint=fingerprint)
    capsule = random_capsule(info, task=task, labels=labels, seed=seed, max_length=16)
    if golden is None:
        probs = probabilities(capsule)
        best = labels[probs.index(max(probs))]
        golden = [{"inputs": {"text": "what is this"}, "label": best, "probs": list(probs)}]
    keys = {"description": f"seed {seed}", "golden": [Golden(**example) for example in golden]}
    return Capsule(capsule.manifest.model_copy(update=keys), capsule.tensors)


def an_artefact(task: str = "trec", seed: int = 0, **keys: Any) -> bytes:
    return dump(a_capsule(task, seed, **keys))


@cache
def blank() -> Path:
    """A data directory with an empty store, to copy: building one takes longer than most tests."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder)
    open_store(folder).close()
    return folder


async def ask(engine: CapsuleEngine, served: Served, text: str = "hello") -> tuple[float, ...]:
    """The probabilities that an engine gives a text."""
    outcome = await engine.classify([RowRequest(served, {"text": text})], timeout=10.0)
    (answer,) = outcome.rows
    if isinstance(answer, ServiceError):
        raise answer
    return answer.probs


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until the condition holds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - conditions of threads and fakes have no event
            await asyncio.sleep(0.001)


def damage(store: Store, where: str = "version > 0") -> None:
    """Overwrite stored artefacts behind the store's back."""
    overwrite(store, f"UPDATE artefacts SET content = X'00' WHERE {where}")


def put(store: Store, data: bytes, task: str = "trec") -> VersionRecord:
    """Store an artefact as another server on the same database does."""
    record, _ = store.add_version(task, digest(data), described(data), data, "upload")
    return record


def put_trained(
    store: Store,
    data: bytes,
    task: str = "trec",
    *,
    held: bool = False,
    evaluation: Mapping[str, Any] | None = None,
) -> VersionRecord:
    """Register an artefact as a training worker does."""
    with store.writing() as session:  # type: ignore[attr-defined]
        record, created = add(
            session,
            task,
            digest(data),
            described(data),
            data,
            "training",
            datetime.now(UTC),
            held=held,
            job=JOB,
        )
        assert created
        if evaluation is not None:
            evaluate(session, record, evaluation)
    return record


def described(data: bytes) -> dict[str, Any]:
    """An artefact's manifest, as the store keeps it."""
    return parse(data).manifest.model_dump(mode="json")


def overwrite(store: Store, statement: str) -> None:
    """Change the database behind the store's back."""
    with store.writing() as session:  # type: ignore[attr-defined]
        session.connection().exec_driver_sql(statement)


def contents(store: Store) -> list[Any]:
    """Everything in a store, its log included."""
    return [
        [(record, data) for record, data in store.iter_artefacts()],
        store.list_aliases(),
        store.changes_since(0),
    ]


def state(registry: Registry, engine: FakeEngine) -> list[Any]:
    """Everything that a change may touch."""
    return [contents(registry.store), dict(engine.bank.resident), registry.catalogue.current]
