"""An acknowledged upload is served after the process was killed."""

import asyncio
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from service.registry.registry import Registry
from service.store import open_store
from tests.service.registry.samples import a_capsule, an_artefact, ask
from tests.support.claimed import INFO
from tests.support.fake_engine import FakeEngine, probabilities

ROOT = Path(__file__).parents[3]


def killed(data_dir: Path) -> list[int]:
    """What a writer acknowledged before it was killed in the middle of its work."""
    command = [sys.executable, "-m", "tests.service.registry.writer", str(data_dir)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            acknowledged = [int(process.stderr.readline()) for _ in range(5)]
        finally:
            process.kill()
        return acknowledged + [int(line) for line in process.stderr]


@pytest.mark.timeout(180)  # the writer imports torch, which takes long on a busy machine
async def test_kill(data_dir: Path) -> None:
    acknowledged = await asyncio.to_thread(killed, data_dir)
    assert acknowledged == list(range(1, len(acknowledged) + 1))
    engine = FakeEngine()
    with closing(open_store(data_dir)) as store:
        registry = Registry(store, engine, INFO)
        report = await registry.load()
        assert report.unusable == 0
        assert len(acknowledged) <= report.served <= len(acknowledged) + 1
        for version in acknowledged:
            seed = version - 1
            assert await registry.artefact("trec", version) == an_artefact(seed=seed)
            served = registry.resolve(f"trec@{version}")
            assert await ask(engine, served) == probabilities(a_capsule(seed=seed))
