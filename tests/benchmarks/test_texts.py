import gzip
import json
import statistics

import pytest

from benchmarks import texts as module
from benchmarks.errors import BenchmarkError
from benchmarks.texts import DATASETS, MEDIAN_WORDS, P95_WORDS, SPLIT, data_folder, load_texts


@pytest.fixture
def folder(tmp_path):
    """Data sets of three texts each."""
    for name in DATASETS:
        path = tmp_path / name / SPLIT
        path.parent.mkdir()
        lines = [json.dumps({"text": f"{name} {n}", "label": "l"}) + "\n" for n in range(3)]
        path.write_bytes(gzip.compress("".join(lines).encode()))
    return tmp_path


def test_real_texts_are_shuffled_together(folder):
    found = load_texts(12, folder)
    assert sorted(found.texts) == sorted(f"{name} {n}" for name in DATASETS for n in range(3))
    assert found.texts[:3] != tuple(f"{DATASETS[0]} {n}" for n in range(3))
    assert all(name in found.source for name in DATASETS)


def test_order_depends_on_the_seed_alone(folder):
    assert load_texts(12, folder, seed=1) == load_texts(12, folder, seed=1)
    assert load_texts(12, folder, seed=1) != load_texts(12, folder, seed=2)
    assert load_texts(40, None, seed=1) == load_texts(40, None, seed=1)


def test_texts_are_not_repeated_to_have_enough(folder):
    with pytest.raises(BenchmarkError, match="12 texts, fewer than the 13"):
        load_texts(13, folder)


def test_made_up_texts_are_as_long_as_real_ones():
    found = load_texts(4000, None)
    lengths = [len(text.split()) for text in found.texts]
    assert abs(statistics.median(lengths) - MEDIAN_WORDS) <= 1
    assert abs(statistics.quantiles(lengths, n=20)[-1] - P95_WORDS) <= 3
    assert min(lengths) >= 1
    assert "made-up" in found.source


def test_option_goes_before_the_environment(folder, tmp_path):
    elsewhere = {module.VARIABLE: str(tmp_path / "elsewhere")}
    assert data_folder(str(folder), elsewhere) == folder
    assert data_folder(None, {module.VARIABLE: str(folder)}) == folder


@pytest.mark.parametrize(
    ("option", "environment"), [("nowhere", {}), (None, {module.VARIABLE: "nowhere"})]
)
def test_named_folder_must_have_the_data(option, environment):
    with pytest.raises(BenchmarkError, match=r"nowhere has no banking77/test\.jsonl\.gz"):
        data_folder(option, environment)


def test_usual_folder_may_be_missing(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "DEFAULT_FOLDER", tmp_path / "missing")
    assert data_folder(None, {}) is None
    monkeypatch.setattr(module, "DEFAULT_FOLDER", folder)
    assert data_folder(None, {}) == folder
