"""What the registry relies on, of the real engine and of the fake one alike."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from capsules.artefact.file import Capsule
from capsules.backbones.base import BackboneInfo, LoadedBackbone
from service.engine.config import EngineConfig
from service.engine.engine import Engine
from service.engine.observer import SilentObserver
from service.errors import NotFound
from service.registry.ports import CapsuleEngine
from tests.service.registry.samples import ask, until
from tests.support.capsules import constant_capsule
from tests.support.executors import RecordingExecutor
from tests.support.fake_engine import FakeEngine

PROBS = (0.125, 0.625, 0.25)


class Subject:
    """An engine, with the means to hold it up."""

    def __init__(
        self,
        engine: CapsuleEngine,
        info: BackboneInfo,
        hold: Callable[[], None],
        held: Callable[[], bool],
        release: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.info = info
        self.hold = hold
        self.held = held
        self.release = release

    def capsule(self) -> Capsule:
        return constant_capsule(self.info, PROBS, task="trec")


@pytest.fixture(params=["fake", "real"])
async def subject(request: pytest.FixtureRequest, tiny: LoadedBackbone) -> AsyncIterator[Subject]:
    if request.param == "fake":
        fake = FakeEngine()
        yield Subject(fake, tiny.info, fake.gate.clear, lambda: fake.waiting > 0, fake.gate.set)
        return
    executor = RecordingExecutor(tiny.info.hidden_size)
    engine = Engine(tiny, executor, EngineConfig(), SilentObserver())
    await engine.start()
    executor.inside.clear()
    yield Subject(engine, tiny.info, executor.gate.clear, executor.inside.is_set, executor.gate.set)
    await engine.stop()


async def test_what_is_added_is_served_as_its_manifest_says(subject: Subject) -> None:
    capsule = subject.capsule()
    served = subject.engine.bank.add(capsule, version=4, digest="d" * 64)
    assert (served.task, served.version, served.digest) == ("trec", 4, "d" * 64)
    assert served.labels == tuple(capsule.manifest.labels)
    assert served.template.fields == ("text",)
    assert served.max_tokens == capsule.manifest.max_length - 1
    assert await ask(subject.engine, served) == pytest.approx(PROBS, abs=1e-6)


async def test_equal_capsules_are_different_ones(subject: Subject) -> None:
    first, second = (
        subject.engine.bank.add(subject.capsule(), version=1, digest="d" * 64) for _ in range(2)
    )
    assert first != second
    subject.engine.bank.remove(first)
    assert await ask(subject.engine, second) == pytest.approx(PROBS, abs=1e-6)


async def test_what_was_removed_is_not_found(subject: Subject) -> None:
    served = subject.engine.bank.add(subject.capsule(), version=1, digest="d" * 64)
    subject.engine.bank.remove(served)
    subject.engine.bank.remove(served)
    with pytest.raises(NotFound) as missing:
        await ask(subject.engine, served)
    assert missing.value.code == "version_not_found"


async def test_a_row_under_way_keeps_what_it_started_with(subject: Subject) -> None:
    served = subject.engine.bank.add(subject.capsule(), version=1, digest="d" * 64)
    subject.hold()
    row = asyncio.create_task(ask(subject.engine, served))
    await until(subject.held)
    subject.engine.bank.remove(served)
    subject.engine.bank.add(
        constant_capsule(subject.info, PROBS[::-1], task="trec"), version=2, digest="e" * 64
    )
    subject.release()
    assert await row == pytest.approx(PROBS, abs=1e-6)


async def test_pins_before_it_awaits(subject: Subject) -> None:
    """One step of the event loop is all that a row needs to be safe from a removal."""
    served = subject.engine.bank.add(subject.capsule(), version=1, digest="d" * 64)
    subject.hold()
    row = asyncio.create_task(ask(subject.engine, served))
    await asyncio.sleep(0)
    subject.engine.bank.remove(served)
    subject.release()
    assert await row == pytest.approx(PROBS, abs=1e-6)
