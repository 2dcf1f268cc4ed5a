import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from capsules.artefact.file import digest, parse, read
from capsules.cli.progress import TrainingBar
from capsules.training.events import EpochReport
from tests.support.commands import PATIENCE_S, invoke, invoke_json, refusal, start
from tests.support.rows import as_csv, as_jsonl

LABELS = ("even", "odd")


def rows(count: int, first: int = 0) -> list[dict[str, str]]:
    """Texts of words that the tiny backbone knows, with a label that the first word settles."""
    return [
        {"text": f"w{n % 2} w{n % 37} w{n % 23}", "label": LABELS[n % 2]}
        for n in range(first, first + count)
    ]


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(as_jsonl(rows(60)))
    return path


@pytest.fixture
def options(tiny):
    return ["--task", "parity", "--backbone", tiny.info.path, "--epochs", "2", "--batch-size", "8"]


def test_a_capsule_is_written_and_told_of(data, options, info):
    shown = invoke_json("train", data, *options)
    written = Path("parity.safetensors").read_bytes()
    manifest = parse(written).manifest
    assert manifest.task == "parity"
    assert manifest.backbone.fingerprint == info.fingerprint
    assert manifest.labels == list(LABELS)
    assert manifest.max_length == info.max_tokens + 1
    assert len(manifest.golden) > 0
    assert manifest.training is not None
    assert shown == {
        "task": "parity",
        "file": "parity.safetensors",
        "digest": digest(written),
        "bytes": len(written),
        "labels": 2,
        "rows": {"train": 54, "validation": 6, "test": 0},
        "bad_rows": 0,
        "epochs": 2,
        "best_epoch": manifest.training.best_epoch,
        "seconds": manifest.training.duration_seconds,
        "metrics": manifest.training.metrics,
    }
    inspected = invoke("inspect", "parity.safetensors").stdout.splitlines()
    accuracy = manifest.training.metrics["validation_accuracy"]
    assert f"validation_accuracy\t{accuracy:.4f}" in inspected
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["parity.safetensors", data.name]


def test_every_option_reaches_the_manifest(tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = [{"premise": row["text"], "claim": "w5", "intent": row["label"]} for row in rows(120)]
    for name, part in (("a", table[:60]), ("b", table[60:90]), ("c", table[90:])):
        (tmp_path / f"{name}.csv").write_bytes(as_csv(part))
    template = "p: {premise} c: {claim}"
    result = invoke(
        *("train", "a.csv", "--task", "claims", "--validation", "b.csv", "--test", "c.csv"),
        *("--template", template, "--label-field", "intent", "--description", "Of claims."),
        *("--length", "2", "--epochs", "3", "--patience", "2", "--batch-size", "16"),
        *("--learning-rate", "0.03", "--max-length", "40", "--seed", "7", "--threads", "1"),
        *("--backbone", tiny.info.path, "--device", "cpu", "--output", "claims.out"),
    )
    assert result.exit_code == 0, result.output
    manifest = read(tmp_path / "claims.out").manifest
    assert (manifest.task, manifest.description) == ("claims", "Of claims.")
    assert (manifest.template, manifest.length, manifest.max_length) == (template, 2, 40)
    assert set(manifest.golden[0].inputs) == {"premise", "claim"}
    record = manifest.training
    assert record is not None
    assert record.splits.model_dump() == {"train": 60, "validation": 30, "test": 30}
    assert (record.seed, record.batch_size, record.learning_rate) == (7, 16, 0.03)
    assert {"test_accuracy", "test_macro_f1"} < set(record.metrics)
    lines = dict(line.split("\t") for line in result.stdout.splitlines())
    assert lines["test_rows"] == "30"
    assert lines["test_accuracy"] == f"{record.metrics['test_accuracy']:.4f}"


def test_labels_are_words_on_a_backbone_that_answers_in_words(data, options, tiny_t5):
    given = [*options, "--backbone", tiny_t5.info.path]
    invoke_json("train", data, *given)
    capsule = read(Path("parity.safetensors"))
    assert capsule.manifest.verbalizers == {"even": "even", "odd": "odd"}
    assert capsule.tensors.keys() == {"capsule"}
    shown = invoke_json(*("evaluate", "parity.safetensors", data, "--backbone", tiny_t5.info.path))
    assert [score["label"] for score in shown["per_class"]] == ["even", "odd"]


def test_labels_that_are_the_same_word_are_refused_before_any_work(data, options, tiny_t5):
    data.write_bytes(as_jsonl([{**row, "label": row["label"][:1]} for row in rows(30)]))
    data.write_bytes(data.read_bytes() + as_jsonl([{"text": "w1", "label": "E"}] * 20))
    result = invoke("train", data, *options, "--backbone", tiny_t5.info.path)
    told = refusal(result, 1, "invalid_labels")
    assert "give them different words" in told
    assert list(Path.cwd().iterdir()) == [data]


def test_a_terminal_gets_a_table_a_bar_and_the_next_step(data, options):
    result = invoke("train", data, *options, terminal=True)
    assert result.exit_code == 0
    assert "validation_accuracy" in result.stdout
    assert "epoch 1/2" in result.stderr
    assert "left" in result.stderr
    assert "capsule push parity.safetensors" in result.stderr


def test_each_epoch_is_a_line_in_a_log(data, options):
    result = invoke("train", data, *options)
    epochs = [line for line in result.stderr.splitlines() if line.startswith("epoch ")]
    assert [line.split()[1] for line in epochs] == ["1/2", "2/2"]
    assert "\x1b" not in result.stderr


def test_bad_rows_are_told_and_counted(data, options):
    data.write_bytes(as_jsonl(rows(30)) + b'{"text": "w1"}\n{\n' + as_jsonl(rows(30, 30)))
    result = invoke("train", data, *options, "--json")
    assert result.exit_code == 0
    assert "line 31: no label" in result.stderr
    assert "line 32: malformed JSON" in result.stderr
    assert '"bad_rows": 2' in result.stdout


def test_an_older_capsule_is_replaced(data, options):
    target = Path("parity.safetensors")
    target.write_text("older")
    invoke_json("train", data, *options)
    assert read(target).manifest.task == "parity"


def interrupted_after(epochs: int) -> Callable[[TrainingBar, EpochReport], None]:
    """What comes in the place of telling an epoch: Ctrl-C after so many."""

    def epoch(bar: TrainingBar, report: EpochReport) -> None:
        if report.epoch >= epochs:
            raise KeyboardInterrupt

    return epoch


def test_an_interrupted_run_goes_on_to_the_same_capsule(data, options, monkeypatch):
    given = ["train", data, *options, "--epochs", "4", "--patience", "4"]
    invoke_json(*given, "--output", "whole.safetensors")

    with monkeypatch.context() as patch:
        patch.setattr(TrainingBar, "epoch", interrupted_after(2))
        result = invoke(*given, "--output", "parts.safetensors")
    assert (result.exit_code, result.stdout) == (130, "")
    assert "after 2 epochs of 4, kept in parts.checkpoint" in result.stderr
    assert "repeat the command" in result.stderr
    assert Path("parts.checkpoint").exists()
    assert not Path("parts.safetensors").exists()

    result = invoke(*given, "--output", "parts.safetensors")
    assert result.exit_code == 0
    assert "Going on after epoch 2 of 4 from parts.checkpoint" in result.stderr
    assert "epoch 2/4" not in result.stderr
    assert not Path("parts.checkpoint").exists()
    whole, parts = read(Path("whole.safetensors")), read(Path("parts.safetensors"))
    assert whole.manifest.golden == parts.manifest.golden
    for name, tensor in whole.tensors.items():
        assert torch.equal(tensor, parts.tensors[name])


def test_an_interruption_before_the_first_epoch_keeps_nothing(data, options, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainingBar, "step", interrupted)
    result = invoke("train", data, *options)
    assert result.exit_code == 130
    assert "nothing is kept" in result.stderr
    assert list(Path.cwd().iterdir()) == [data]


def test_another_runs_checkpoint_is_not_gone_on_from(data, options, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(TrainingBar, "epoch", interrupted_after(1))
        invoke("train", data, *options)
    result = invoke("train", data, *options, "--seed", "1")
    assert "Delete it to start over" in refusal(result, 1, "checkpoint_mismatch")


@pytest.mark.timeout(PATIENCE_S)
def test_ctrl_c_in_a_process_of_its_own(data, options):
    arguments = ["train", data, *options, "--epochs", "1000", "--patience", "1000"]
    process = start([*arguments, "--threads", "1"], Path.cwd())
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("epoch 3/"):
            os.kill(process.pid, signal.SIGINT)
            break
    output, messages = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output) == (130, "")
    assert "of 1000, kept in parity.checkpoint" in messages
    assert "Traceback" not in messages
    assert Path("parity.checkpoint").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--task", "No"], "--task 'No'"),
        (["--task", "latest"], "reserved"),
        (["--epochs", "0"], "--epochs 0"),
        (["--patience", "0"], "--patience 0"),
        (["--batch-size", "0"], "--batch-size 0"),
        (["--length", "0"], "--length 0"),
        (["--seed", "-1"], "--seed -1"),
        (["--learning-rate", "-1"], "--learning-rate -1.0"),
        (["--learning-rate", "nan"], "--learning-rate nan"),
        (["--max-length", "5000"], "max_length 5000"),
        (["--description", "x" * 5000], "--description"),
        (["--template", "{"], "template"),
        (["--template", "nothing"], "template"),
        (["--label-field", "text"], "label_field"),
        (["--validation-fraction", "0.9"], "fraction"),
        (["--max-bad-rows", "lots"], "--max-bad-rows"),
        (["--device", "tpu"], "device"),
        (["--output", "."], "--output"),
        (["--output", "missing/x.safetensors"], "--output"),
        (["--checkpoint", "missing/x"], "--checkpoint"),
        (["--output", "rows.jsonl"], "--output: rows.jsonl holds the rows"),
        (["--checkpoint", "./rows.jsonl"], "--checkpoint: rows.jsonl holds the rows"),
        (["--checkpoint", "parity.safetensors"], "is the output"),
    ],
)
def test_options_that_cannot_be_used_stop_it_before_any_work(given, told, data, options):
    result = invoke("train", data, *options, *given)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert told in result.stderr
    assert len(result.stderr) < 500
    assert list(Path.cwd().iterdir()) == [data]


def test_all_bad_options_are_told_together(data, options):
    result = invoke("train", data, *options, "--epochs", "0", "--seed", "-1")
    told = refusal(result, 2, "invalid_option")
    assert "--epochs 0" in told
    assert "--seed -1" in told


def test_a_folder_that_cannot_be_written_to_is_refused(data, options, monkeypatch):
    really = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and really(path, mode))
    told = refusal(invoke("train", data, *options), 2, "invalid_option")
    assert "cannot be written to" in told


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_dataset"),
        (as_jsonl(rows(20)[::2]), "one_class"),
        (b"{\n" * 10 + as_jsonl(rows(10)), "too_many_bad_rows"),
        (as_jsonl(rows(2)), "split_too_small"),
        (b'[{"text": "w1", "label": "a"}]', "unsupported_format"),
    ],
)
def test_data_that_cannot_be_used_fails(content, code, data, options):
    data.write_bytes(content)
    refusal(invoke("train", data, *options), 1, code)


@pytest.mark.parametrize("apart", [False, True])
def test_a_label_without_a_row_to_validate_on_is_refused(apart, data, options):
    rare = {"text": "w1 w2", "label": "rare"}
    data.write_bytes(as_jsonl([*rows(60), rare]))
    given = list(options)
    if apart:
        Path("validation.jsonl").write_bytes(as_jsonl(rows(10, first=100)))
        given += ["--validation", "validation.jsonl"]
    told = refusal(invoke("train", data, *given), 1, "unmeasured_label")
    assert "The label 'rare' has training rows and no validation row" in told
    assert not Path("parity.safetensors").exists()


@pytest.mark.parametrize("option", ["DATA", "--validation", "--test"])
def test_a_file_that_is_not_there_is_wrong_usage(option, data, options):
    given = ["train", "none.jsonl"] if option == "DATA" else ["train", data, option, "none.jsonl"]
    result = invoke(*given, *options)
    assert result.exit_code == 2
    assert "does not exist" in result.stderr


def test_a_capsule_that_cannot_be_written_keeps_its_epochs(data, options):
    Path(".parity.safetensors.partial").mkdir()
    result = invoke("train", data, *options)
    assert "The trained epochs are kept" in result.stderr
    assert "error [unwritable_output]" in result.stderr
    assert (result.exit_code, result.stdout) == (1, "")
    Path(".parity.safetensors.partial").rmdir()
    again = invoke("train", data, *options)
    assert again.exit_code == 0
    assert "Going on after epoch 2 of 2" in again.stderr


def test_a_diverging_run_fails(data, options):
    result = invoke("train", data, *options, "--learning-rate", "1e38")
    assert result.exit_code == 1
    assert "error [training_diverged]" in result.stderr
    assert "lower the learning rate" in result.stderr
