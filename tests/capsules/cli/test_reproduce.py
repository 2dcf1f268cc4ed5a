import json
from pathlib import Path

import pytest

from capsules.cli.reproduce import ComparisonBar
from capsules.reproduce.journal import CHECKPOINTS, RUNS
from capsules.reproduce.turn import alone_in
from tests.capsules.reproduce.sets import write_file, write_set
from tests.support.backbones import tiny_family
from tests.support.commands import invoke, invoke_json, refusal

METHODS = "capsule,task-only,linear-head"


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_set(tmp_path / "data", "cb")
    write_set(tmp_path / "data", "trec")
    return tmp_path / "data"


@pytest.fixture
def arguments(data, tiny):
    """A comparison of a few seconds."""
    shared = ["--epochs", "1", "--seeds", "1", "--methods", METHODS, "--data", data]
    return ["reproduce", *shared, "--backbone", tiny.info.path, "--output", "runs"]


def test_comparison_is_written_and_told_of(arguments, tiny):
    shown = invoke_json(*arguments, "--tasks", "cb")
    folder = Path("runs")
    assert json.loads((folder / "results.json").read_bytes()) == shown
    assert shown["runs"] == len((folder / RUNS).read_text().splitlines()) == 3
    assert [cell["method"] for cell in shown["cells"]] == METHODS.split(",")
    assert shown["configuration"]["backbone"]["fingerprint"] == tiny.info.fingerprint
    assert [pair["verdict"] for pair in shown["differences"]] == ["one seed"]
    assert shown["skipped"] == []
    text = (folder / "results.md").read_text()
    assert "| capsule |" in text
    assert f"--backbone {tiny.info.path} " in text
    assert {path.name for path in folder.glob("*.png")} == {
        "attention-cb.png",
        "parameters.png",
        "time.png",
    }
    assert {path.name for path in (folder / "capsules").iterdir()} == {
        "cb-capsule-0.safetensors",
        "cb-task-only-0.safetensors",
    }


def test_progress_is_told_on_standard_error(arguments):
    result = invoke(*arguments, "--tasks", "cb", "--no-plots", "--methods", "linear-head")
    assert result.exit_code == 0, result.output
    assert "cb-linear-head-0  learning rate 0.02  epoch 1/1  accuracy" in result.stderr
    assert "[1/1] cb linear-head seed 0: test" in result.stderr
    assert "cb has 40 of the 250 published training rows" in result.stderr
    cells = result.stdout.strip().split("\t")
    assert cells[:4] == ["score", "cb", "linear-head", "1"]
    assert cells[5] == ""
    assert not list(Path("runs").glob("*.png"))


def test_terminal_shows_tables(arguments):
    result = invoke(*arguments, "--tasks", "cb", "--methods", "linear-head", terminal=True)
    assert result.exit_code == 0, result.output
    assert "Test scores" in result.stdout
    assert "Written to runs/results.md" in result.stderr


def test_repeating_adds_only_what_is_missing(arguments):
    invoke_json(*arguments, "--tasks", "cb", "--no-plots", "--methods", "linear-head")
    more = ["--no-plots", "--methods", "linear-head", "--seeds", "2"]
    result = invoke(*arguments, "--tasks", "cb", *more)
    assert "1 of 2 runs are finished already." in result.stderr
    assert result.stdout.split("\t")[3] == "2"
    # Sets of another suite go into the same folder.
    shown = invoke_json(*arguments, "--suite", "single", "--tasks", "trec", *more)
    assert [(cell["task"], len(cell["seeds"])) for cell in shown["cells"]] == [
        ("cb", 2),
        ("trec", 2),
    ]


def test_absent_sets_of_a_suite_are_left_out_with_the_reason(arguments):
    result = invoke(*arguments, "--no-plots", "--methods", "linear-head")
    assert result.exit_code == 0, result.output
    assert "warning: multirc: " in result.stderr
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [line[1] for line in lines if line[0] == "score"] == ["cb"]
    missing = {line[1]: line[4] for line in lines if line[0] == "skipped"}
    assert list(missing) == ["boolq", "copa", "multirc", "rte", "wic"]
    assert "super.gluebenchmark.com" in missing["multirc"]
    assert "| multirc | - | - | multirc: " in Path("runs/results.md").read_text()


def test_run_that_fails_is_told_and_the_exit_code_says_so(arguments):
    options = ["--tasks", "cb", "--no-plots", "--learning-rates", "capsule=1e38"]
    result = invoke(*arguments, *options)
    assert result.exit_code == 1
    assert "error [runs_failed]: 1 run failed: cb-capsule-0: The loss is" in result.stderr
    assert "skipped\tcb\tcapsule\t0" in result.stdout
    assert "| cb | capsule | 0 |" in Path("runs/results.md").read_text()


@pytest.mark.parametrize(
    ("options", "exit_code", "code", "words"),
    [
        (["--suite", "glue"], 2, "invalid_option", "superglue, csqa, single"),
        (["--tasks", "trec"], 2, "invalid_option", "it has: boolq, cb"),
        (["--methods", "adapter"], 2, "invalid_option", "choose of: capsule"),
        (["--epochs", "0"], 2, "invalid_option", "--epochs 0"),
        (["--layers", "some"], 2, "invalid_option", "layers"),
        (["--learning-rates", "fast"], 2, "invalid_option", "no list of learning rates"),
        (["--learning-rates", "lora=0.1"], 2, "invalid_option", "which does not run"),
        (["--data", "nowhere"], 1, "unreadable_file", "nowhere is no folder"),
        (["--tasks", "copa"], 1, "unreadable_file", "copa: "),
        (["--suite", "csqa"], 1, "unreadable_file", "csqa"),
        (["--suite", "single", "--tasks", "mine"], 1, "unreadable_file", "mine: "),
    ],
)
def test_misuse_is_one_line(arguments, options, exit_code, code, words):
    message = refusal(invoke(*arguments, *options), exit_code, code)
    assert words in message
    assert len(message.strip().splitlines()) == 1 + message.count("warning: ")
    assert not Path("runs", RUNS).exists()


def test_bad_rows_stop_before_anything_is_made(arguments, data):
    write_file(data / "cb", "train", [{"premise": "p", "label": "neutral"}])
    message = refusal(invoke(*arguments, "--tasks", "cb"), 1, "missing_column")
    assert "has no column 'hypothesis'" in message
    assert not Path("runs").exists()


def test_folder_of_another_configuration_is_refused(arguments):
    options = ["--tasks", "cb", "--no-plots", "--methods", "linear-head"]
    assert invoke(*arguments, *options).exit_code == 0
    message = refusal(invoke(*arguments, *options, "--epochs", "2"), 2, "invalid_option")
    assert "runs holds runs with epochs 1, not 2" in message


def test_folder_that_cannot_be_written_is_refused(arguments):
    Path("runs").write_text("a file")
    message = refusal(invoke(*arguments, "--tasks", "cb"), 1, "unwritable_output")
    assert "runs cannot be written to" in message


def test_plots_that_cannot_be_written_are_told(arguments):
    Path("runs/parameters.png").mkdir(parents=True)
    result = invoke(*arguments, "--tasks", "cb", "--methods", "linear-head")
    assert result.exit_code == 1
    assert "error [unwritable_output]: runs cannot be written to" in result.stderr


def test_methods_without_anything_to_learn_are_left_out(arguments, tmp_path):
    folder = tiny_family(tmp_path / "t5", "t5").info.path
    options: list[str | Path] = ["--tasks", "cb", "--no-plots", "--backbone", folder]
    message = refusal(invoke(*arguments, *options), 2, "invalid_option")
    assert "linear-head has nothing to learn on a backbone that answers in words" in message
    shared = ["--epochs", "1", "--seeds", "1", "--data", str(tmp_path / "data")]
    shown = invoke_json("reproduce", *shared, *options, "--output", "runs")
    assert len(shown["cells"]) == 8
    assert [skip["method"] for skip in shown["skipped"]] == ["instance-only", "linear-head"]


def test_layers_may_be_numbers(arguments):
    options = ["--tasks", "cb", "--no-plots", "--methods", "task-only", "--layers", "1,3"]
    shown = invoke_json(*arguments, *options)
    assert shown["configuration"]["settings"]["layers"] == [1, 3]
    # Two vectors of 32 numbers and a head of three labels.
    assert shown["cells"][0]["trainable_parameters"] == 2 * 32 + 3 * 33


def test_interrupted_comparison_goes_on_when_repeated(arguments, monkeypatch):
    options = ["--tasks", "cb", "--no-plots", "--methods", "capsule,linear-head"]

    def interrupt(bar, report):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ComparisonBar, "epoch", interrupt)
        result = invoke(*arguments, *options)
    assert result.exit_code == 130
    assert "0 finished runs and the epochs of the present one are kept in runs." in result.stderr
    assert result.stdout == ""
    assert [path.name for path in Path("runs", CHECKPOINTS).iterdir()] == ["cb-capsule-0-0.02.pt"]
    result = invoke(*arguments, *options)
    assert result.exit_code == 0, result.output
    # The epoch that was finished is not trained again.
    assert "cb-capsule-0  learning rate 0.02  epoch" not in result.stderr
    assert "cb-linear-head-0  learning rate 0.02  epoch 1/1" in result.stderr


def test_second_process_in_a_folder_is_refused(arguments):
    options = ["--tasks", "cb", "--no-plots", "--methods", "linear-head"]
    with alone_in(Path("runs")):
        message = refusal(invoke(*arguments, *options), 2, "invalid_option")
        assert "runs is in use by another process" in message
        assert not Path("runs", RUNS).exists()
    assert invoke(*arguments, *options).exit_code == 0
