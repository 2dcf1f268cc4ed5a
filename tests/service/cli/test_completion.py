import subprocess
import sys

import pytest

from tests.support.commands import ROOT, invoke


def test_task_names_are_completed(url, file, monkeypatch):
    invoke("push", file, "--url", url)
    monkeypatch.setenv("CAPSULE_URL", url)
    for words, found in (
        ("capsule classify t", ["trec"]),
        ("capsule rm ", ["new", "trec"]),
        ("capsule list ne", ["new"]),
        ("capsule cl", ["classify"]),
    ):
        assert completions(words, monkeypatch) == found


def test_without_a_server_no_task_is_completed(nowhere, monkeypatch):
    monkeypatch.setenv("CAPSULE_URL", nowhere)
    assert completions("capsule classify t", monkeypatch) == []
    monkeypatch.setenv("CAPSULE_URL", "no url")
    assert completions("capsule classify t", monkeypatch) == []


def completions(words: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a shell is told to complete."""
    monkeypatch.setenv("_CAPSULE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    done = subprocess.run(
        [sys.executable, "-m", "service"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.split()
