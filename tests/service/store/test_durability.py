"""Acknowledged means on disk, and never half of it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from service.store import open_store
from tests.service.store.samples import digest_of

ROOT = Path(__file__).parents[3]


@contextmanager
def writer(location: str) -> Iterator[subprocess.Popen[str]]:
    """Run the writer, which is dead afterwards in any case."""
    command = [sys.executable, "-m", "tests.service.store.writer", location]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def acknowledged(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_kill_right_after_the_acknowledgement(location: str) -> None:
    with writer(location) as process:
        version = acknowledged(process)
        process.kill()
    with closing(open_store(location)) as store:
        assert store.get_version("spam", version).digest == digest_of(b"0" * 10_000)
        assert store.artefact("spam", version) == b"0" * 10_000


@pytest.mark.parametrize("delay_s", [0.0, 0.007, 0.041])
def test_kill_in_the_middle_leaves_whole_versions(location: str, delay_s: float) -> None:
    with writer(location) as process:
        last = max(acknowledged(process) for _ in range(3))
        time.sleep(delay_s)
        process.kill()
        assert process.stdout is not None
        for line in process.stdout:
            last = int(line)
    with closing(open_store(location)) as store:
        versions = store.list_versions("spam")
        assert [record.version for record in versions] == list(range(1, len(versions) + 1))
        assert last <= len(versions) <= last + 1
        stored = {record.version: content for record, content in store.iter_artefacts()}
        assert {number: digest_of(content) for number, content in stored.items()} == {
            record.version: record.digest for record in versions
        }
        changes = store.changes_since(0)
        assert [change.sequence for change in changes] == list(range(1, len(changes) + 1))
        added = [change.version for change in changes if change.kind == "version_added"]
        assert added == [record.version for record in versions]
        moved = [change for change in changes if change.kind == "alias_set"]
        alias = store.get_alias("spam", "newest")
        assert (alias.version, alias.revision) == (moved[-1].version, moved[-1].sequence)
