"""From rows to answers over HTTP: the real server and ledger, and a real run on a tiny backbone."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from service.app import create_app
from service.jobs.records import Claim
from service.jobs.sql import open_ledger
from service.startup import assemble
from service.store import open_store
from service.worker.trainer import Trainer
from tests.service.worker.samples import at_once
from tests.support.backbones import save_tiny_bert
from tests.support.commands import invoke, invoke_json
from tests.support.datasets import separable
from tests.support.edge import serving, settings_for, wait_until
from tests.support.rows import as_jsonl


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> LoadedBackbone:
    folder = save_tiny_bert(tmp_path_factory.mktemp("tiny-bert"))
    return load(str(folder), device="cpu", dtype="float32")


@pytest.fixture
def url(tiny: LoadedBackbone, tmp_path: Path) -> Iterator[str]:
    """A server on the tiny backbone."""
    settings = settings_for(tmp_path / "data", backbone=str(tiny.info.path), device="cpu")
    with capture_logs(), serving(create_app(settings, build=assemble)) as address:
        yield address


def work(folder: Path, tiny: LoadedBackbone) -> None:
    """Do the next job, as a worker does."""
    store = open_store(folder)
    try:
        ledger = open_ledger(store)
        wait_until(lambda: bool(ledger.queued()))
        ((job, run),) = ledger.queued()
        claim = Claim(job, run, "token")
        started = ledger.start(claim, ledger.take_slot("token", "host", 123, ()).name)
        Trainer(ledger, store, lambda: tiny).train(claim, started, at_once)
    finally:
        store.close()


def test_rows_come_to_answers(url: str, tiny: LoadedBackbone, tmp_path: Path) -> None:
    learnt = [{"text": row.inputs["text"], "label": row.label} for row in separable(90, seed=1)]
    file = tmp_path / "rows.jsonl"
    file.write_bytes(as_jsonl(learnt))
    worker = threading.Thread(target=work, args=(tmp_path / "data", tiny))
    worker.start()
    how = ["--epochs", "6", "--batch-size", "8", "--learning-rate", "0.02", "--max-length", "32"]
    rows = ["--train", str(file), "--task", "tiny"]
    result = invoke("jobs", "submit", *rows, *how, "--watch", "--url", url)
    worker.join()
    assert result.exit_code == 0, result.output
    job, *events = result.stdout.splitlines()
    assert [line.split("\t")[3] for line in events].count("metrics") == 6

    shown = invoke_json("jobs", "show", job, "--url", url)
    assert (shown["status"], shown["fine_tuned_model"]) == ("succeeded", "tiny@1")
    assert shown["result"]["activated"] is True
    assert [epoch["epoch"] for epoch in shown["metrics"]] == list(range(1, 7))
    assert shown["result"]["metrics"]["validation_accuracy"] >= 0.9

    # The server hears of it within a second.
    wait_until(lambda: invoke_json("list", "--url", url) != [])
    new = separable(20, seed=9)
    texts = "".join(row.inputs["text"] + "\n" for row in new)
    answers = invoke("classify", "tiny", "--json", "--url", url, stdin=texts)
    assert answers.exit_code == 0, answers.output
    labels = [json.loads(line)["label"] for line in answers.stdout.splitlines()]
    right = sum(label == row.label for label, row in zip(labels, new, strict=True))
    assert right >= 17
