import pytest
import torch

from capsules.artefact.file import digest, dump
from capsules.core import Example
from capsules.evaluation.runner import evaluate
from capsules.executors.torch import TorchExecutor
from tests.support.capsules import random_capsule
from tests.support.commands import invoke, invoke_json, refusal
from tests.support.rows import as_jsonl

LABELS = ("no", "yes")


@pytest.fixture(scope="module")
def capsule(info):
    return random_capsule(info, task="evaluated", labels=LABELS, seed=3)


@pytest.fixture
def file(capsule, tmp_path):
    path = tmp_path / "task.safetensors"
    path.write_bytes(dump(capsule))
    return path


@pytest.fixture(scope="module")
def examples():
    return [Example({"text": f"w{n} w{n * 7 % 90}"}, LABELS[n % 2]) for n in range(40)]


@pytest.fixture
def data(examples, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(as_jsonl([{**one.inputs, "label": one.label} for one in examples]))
    return path


def test_json_is_the_report(file, data, examples, capsule, tiny):
    shown = invoke_json("evaluate", file, data, "--backbone", tiny.info.path)
    report = evaluate(tiny, TorchExecutor(tiny.backbone), capsule, examples)
    assert 0.0 < report.accuracy < 1.0
    assert shown == {
        "task": "evaluated",
        "file": str(file),
        "digest": digest(file.read_bytes()),
        "data": str(data),
        "bad_rows": 0,
        **report.model_dump(mode="json"),
    }


def test_a_pipe_gets_a_line_for_each_number(file, data, tiny):
    result = invoke("evaluate", file, data, "--backbone", tiny.info.path)
    shown = invoke_json("evaluate", file, data, "--backbone", tiny.info.path)
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert lines[0] == ["accuracy", str(shown["accuracy"])]
    assert [line[1] for line in lines if line[0] == "class"] == list(LABELS)
    confusion = {(line[1], line[2]): int(line[3]) for line in lines if line[0] == "confusion"}
    assert sum(confusion.values()) == 40
    assert confusion["no", "no"] == shown["confusion"][0][0]


def test_a_terminal_gets_tables(file, data, tiny):
    result = invoke("evaluate", file, data, "--backbone", tiny.info.path, terminal=True)
    assert result.exit_code == 0
    for heading in ("macro F1", "Per class", "Confusion"):
        assert heading in result.stdout


def test_rows_with_labels_that_the_capsule_lacks_are_left_out(file, tiny, tmp_path):
    data = tmp_path / "rows.jsonl"
    rows = [{"text": "w1", "label": "yes"}] * 9 + [{"text": "w2", "label": "maybe"}]
    data.write_bytes(as_jsonl(rows))
    result = invoke("evaluate", file, data, "--backbone", tiny.info.path)
    assert "line 10: label 'maybe' is not one of the 2 labels given" in result.stderr
    assert "examples\t9" in result.stdout.splitlines()
    strict = invoke("evaluate", file, data, "--backbone", tiny.info.path, "--max-bad-rows", "0")
    refusal(strict, 1, "too_many_bad_rows")


def test_another_backbone_is_refused(file, data):
    assert "Train it on this backbone" in refusal(
        invoke("evaluate", file, data, "--threads", "1"), 1, "backbone_mismatch"
    )


@pytest.mark.parametrize(
    ("options", "exit_code", "code"),
    [
        (["--device", "tpu"], 2, "invalid_option"),
        (["--backbone", "./nowhere"], 1, "backbone_not_found"),
        (["--label-field", "text"], 2, "invalid_option"),
        (["--label-field", "intent"], 1, "too_many_bad_rows"),
        (["--max-bad-rows", "some"], 2, "invalid_option"),
    ],
)
def test_what_cannot_be_used_is_refused(options, exit_code, code, file, data, tiny):
    given = options if "--backbone" in options else [*options, "--backbone", tiny.info.path]
    refusal(invoke("evaluate", file, data, *given), exit_code, code)


def test_a_lack_of_memory_is_one_line(file, data, tiny, monkeypatch):
    def full(executor, tokens, *prompts):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(TorchExecutor, "features", full)
    message = refusal(
        invoke("evaluate", file, data, "--backbone", tiny.info.path), 1, "out_of_memory"
    )
    assert "shorten the longest" in message
    assert "Traceback" not in message


def test_other_failures_are_not_taken_for_a_lack_of_memory(file, data, tiny, monkeypatch):
    def broken(executor, tokens, *prompts):
        raise RuntimeError("broken")

    monkeypatch.setattr(TorchExecutor, "features", broken)
    with pytest.raises(RuntimeError, match="broken"):
        invoke("evaluate", file, data, "--backbone", tiny.info.path)
