import pytest
import safetensors.torch
import torch

from capsules.artefact.file import digest, dump
from tests.support.capsules import random_capsule
from tests.support.commands import invoke, invoke_json, refusal


@pytest.fixture
def file(info, tmp_path):
    path = tmp_path / "task.safetensors"
    labels = [f"label {number}" for number in range(30)]
    labels[1] = "\x1b[31mred"
    path.write_bytes(dump(random_capsule(info, labels=labels, length=2)))
    return path


def test_json_holds_all_there_is(file, info):
    shown = invoke_json("inspect", file)
    assert shown["file"] == str(file)
    assert shown["bytes"] == file.stat().st_size
    assert shown["digest"] == digest(file.read_bytes())
    assert shown["tensors"] == {
        "capsule": {"shape": [3, 2, 32], "dtype": "float32"},
        "head.bias": {"shape": [30], "dtype": "float32"},
        "head.weight": {"shape": [30, 32], "dtype": "float32"},
    }
    assert shown["parameters"] == 3 * 2 * 32 + 30 * 32 + 30
    assert shown["manifest"]["task"] == "task"
    assert shown["manifest"]["backbone"]["fingerprint"] == info.fingerprint
    assert shown["manifest"]["labels"][1] == "\x1b[31mred"


def test_a_pipe_gets_a_line_for_each_fact(file):
    result = invoke("inspect", file)
    lines = result.stdout.splitlines()
    assert "task\ttask" in lines
    assert f"digest\t{digest(file.read_bytes())}" in lines
    assert "label\t\\x1b[31mred" in lines
    assert "tensor\tcapsule\t3 x 2 x 32\tfloat32" in lines
    assert sum(line.startswith("label\t") for line in lines) == 30


@pytest.mark.parametrize(
    ("layers", "shown"), [("latter-half", "latter-half"), ([1, 3], "1,3"), ("all", "all")], ids=str
)
def test_how_tokens_are_formed_and_where_is_shown(layers, shown, info, tmp_path):
    path = tmp_path / "task.safetensors"
    path.write_bytes(dump(random_capsule(info, variant="projection", layers=layers)))
    lines = invoke("inspect", path).stdout.splitlines()
    assert "variant\tprojection" in lines
    assert f"layers\t{shown}" in lines
    assert invoke_json("inspect", path)["manifest"]["layers"] == layers


def test_a_terminal_gets_tables_with_the_first_labels(file):
    result = invoke("inspect", file, terminal=True)
    assert result.exit_code == 0
    assert "3 x 2 x 32" in result.stdout
    assert "and 10 more" in result.stdout
    assert "\x1b[31mred" not in result.stdout


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "artefact_too_small"),
        (b"\x80\x04\x95 a pickle or something else", "not_safetensors"),
        (safetensors.torch.save({"x": torch.zeros(1)}), "missing_manifest"),
    ],
)
def test_a_malformed_file_is_an_error_with_its_code(content, code, tmp_path):
    file = tmp_path / "bad.safetensors"
    file.write_bytes(content)
    refusal(invoke("inspect", file), 1, code)
    refusal(invoke("inspect", file, "--json"), 1, code)


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path):
    result = invoke("inspect", tmp_path / "none.safetensors")
    assert result.exit_code == 2
    assert "does not exist" in result.stderr
