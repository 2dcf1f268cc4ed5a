"""`python -m capsules.zoo`, with a tiny task."""

import gzip
import io
import runpy
import sys
from pathlib import Path

import pytest
from rich.console import Console

from capsules.artefact.file import digest, read
from capsules.backbones.base import LoadedBackbone
from capsules.errors import DataError
from capsules.zoo import __main__ as zoo_main
from capsules.zoo.__main__ import chosen, main, train
from capsules.zoo.build import Places, Result
from capsules.zoo.recipe import RECIPES, Recipe
from capsules.zoo.table import BEGIN, END, markdown, results
from tests.support.backbones import tiny_bert
from tests.support.datasets import separable
from tests.support.rows import as_jsonl

TINY = Recipe("tiny", "Yes or no.", seeds=(3, 4))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedBackbone:
    """Takes texts as long as the recipes allow."""
    return tiny_bert(tmp_path_factory.mktemp("long"), max_tokens=512)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Folders with made-up rows of the task `tiny`."""
    folder = tmp_path / "data" / "tiny"
    folder.mkdir(parents=True)
    for seed, (split, rows) in enumerate({"train": 12, "validation": 6, "test": 6}.items()):
        dataset = separable(rows, seed=seed)
        lines = as_jsonl([{**row.inputs, "label": row.label} for row in dataset])
        (folder / f"{split}.jsonl.gz").write_bytes(gzip.compress(lines))
    return Places(*(tmp_path / name for name in ("data", "work", "results", "artefacts")))


class Zoo:
    """The command on one task of the zoo, with folders of its own.

    Attributes:
        said: what the last call wrote.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.result = folder / "results" / "snips-0.json"
        self.result.parent.mkdir()
        self.said = ""

    def __call__(self, *options: str) -> int:
        written = io.StringIO()
        folders = [
            part
            for name in ("data", "work", "results", "artefacts")
            for part in (f"--{name}", str(self.folder / name))
        ]
        arguments = [*folders, "--task", "snips", *options]
        status = main(arguments, Console(file=written, width=200))
        self.said = written.getvalue()
        return status


@pytest.fixture
def zoo(tmp_path: Path) -> Zoo:
    return Zoo(tmp_path)


def test_runs_are_trained_and_told_and_leave_no_checkpoints(
    loaded: LoadedBackbone, places: Places
) -> None:
    written = io.StringIO()
    train(loaded, [(TINY, 3), (TINY, 4)], places, Console(file=written, width=200))
    artefact = places.artefacts / "tiny.safetensors"
    for seed in TINY.seeds:
        result = Result.model_validate_json(places.result(TINY, seed).read_bytes())
        accuracy = result.capsule.test_accuracy
        assert f"tiny seed {seed}: test accuracy {accuracy:.4f}, linear" in written.getvalue()
        assert f"tiny seed {seed} epoch 1: train loss" in written.getvalue()
        assert (result.digest == digest(artefact.read_bytes())) is (seed == 3)
    assert read(artefact).manifest.labels == ["no", "yes"]
    assert list(places.work.iterdir()) == []


def test_checkpoints_stay_until_every_run_is_done(loaded: LoadedBackbone, places: Places) -> None:
    with pytest.raises(DataError, match="absent"):
        train(loaded, [(TINY, 3), (Recipe("absent", ""), 0)], places, Console(file=io.StringIO()))
    assert set(places.work.iterdir()) == set(places.checkpoints(TINY, 3))


def test_what_has_a_result_is_told_and_left_alone(zoo: Zoo) -> None:
    zoo.result.write_text("{}")
    assert zoo() == 0
    assert zoo.said == (
        "snips seed 0: result present, skipped\n--retrain trains also what has a result.\n"
    )
    assert zoo.result.read_text() == "{}"


@pytest.mark.parametrize("options", [(), ("--retrain",)])
def test_otherwise_it_is_trained_and_a_failure_is_one_line(
    zoo: Zoo, options: tuple[str, ...]
) -> None:
    if options:
        zoo.result.write_text("{}")
    assert zoo(*options) == 1
    assert "skipped" not in zoo.said
    (line,) = (line for line in zoo.said.splitlines() if line.startswith("error ["))
    assert "train.jsonl.gz" in line


def test_every_run_of_every_recipe_is_chosen_unless_some_are_named() -> None:
    assert chosen(None, None) == [(recipe, seed) for recipe in RECIPES for seed in recipe.seeds]
    some = [(recipe.task, seed) for recipe, seed in chosen(["trec"], [0, 2])]
    assert some == [("trec", 0), ("trec", 2)]


@pytest.mark.parametrize(
    ("options", "told"), [((), "--data is needed"), (("--task", "wine"), "invalid choice: 'wine'")]
)
def test_wrong_usage(
    options: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(options)
    assert left.value.code == 2
    assert told in capsys.readouterr().err


def test_the_table_is_put_into_a_document(tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert main(["--table", str(document)]) == 0
    assert document.read_text() == f"before\n{BEGIN}\n{markdown(results())}\n{END}\nafter\n"


def test_it_runs_as_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["zoo", "--data", str(tmp_path), "--task", "sst2"])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(zoo_main.__file__), run_name="__main__")
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("sst2 seed 0: result present, skipped\n")
