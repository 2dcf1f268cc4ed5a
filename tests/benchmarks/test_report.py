from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.machine import ROOT
from benchmarks.registry import BENCHMARKS
from benchmarks.report import BEGIN, DOCUMENT, END, NOTHING, insert, section, write_report
from benchmarks.result import read_results

PLACES = "".join(f"# {name}\n{BEGIN.format(name=name)}\nold\n{END}\n" for name in BENCHMARKS)


@pytest.fixture
def docs(tmp_path):
    """A folder with a document that has a place for every result."""
    (tmp_path / DOCUMENT).write_text("Before.\n" + PLACES + "After.\n")
    return tmp_path


def test_results_are_written_up_between_their_marks(result, docs):
    result.write(docs / "results")
    written = write_report(docs / "results", docs)
    text = (docs / DOCUMENT).read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("After.\n")
    assert section(result) in text
    assert "old" not in text
    assert text.count(NOTHING) == len(BENCHMARKS) - 1
    assert written == [docs / "img" / "engine_overhead.svg", docs / DOCUMENT]


def test_writing_twice_changes_nothing(result, docs):
    result.write(docs / "results")
    write_report(docs / "results", docs)
    paths = [docs / DOCUMENT, docs / "img" / "engine_overhead.svg"]
    before = [path.read_bytes() for path in paths]
    write_report(docs / "results", docs)
    assert [path.read_bytes() for path in paths] == before


def test_plot_that_the_section_shows_is_there(result, docs):
    result.write(docs / "results")
    write_report(docs / "results", docs)
    link = section(result).split("](")[1].split(")")[0]
    assert "<svg" in (docs / link).read_text()


def test_section_says_what_was_found(result):
    text = section(result)
    assert "| ours / theirs | 0.961 | 0.94 to 0.98 | at least 0.95 | met |" in text
    assert "| ours above theirs | 1,234 ms | -1.5 to 2,000 |  |  |" in text
    assert "| a / b | 2 (1.5 to 2.5) | 3 (2.5 to 3.5) |" in text
    assert "| c | 5 (5 to 5) |  |" in text
    assert "| c | 500 (500 to 500) |" in text
    assert "- Mind the gap." in text
    assert "- labels: [2, 3]" in text


def test_section_says_where_it_was_measured(result):
    text = section(result)
    for detail in ("2026-03-01", "c0ffeec0ffee", "Abacus 5", "torch 2.13.0", "2 threads"):
        assert detail in text
    assert "with changes" not in text
    changed = result.machine.model_copy(update={"changed": True, "commit": None, "gpu": "G 9"})
    text = section(result.model_copy(update={"machine": changed}))
    assert "no commit with changes" in text
    assert "G 9" in text


def test_missed_goal_is_told(result):
    missed = result.findings.figures[0].model_copy(update={"value": 0.9})
    findings = result.findings.model_copy(update={"figures": (missed,)})
    assert "| missed |" in section(result.model_copy(update={"findings": findings}))


@pytest.mark.parametrize("document", ["", BEGIN.format(name="x"), PLACES + PLACES])
def test_document_needs_one_place_a_result(document):
    with pytest.raises(BenchmarkError, match="places for engine_overhead"):
        insert(document, {"engine_overhead": "new"})


def test_backslashes_are_no_patterns():
    assert r"\1 \g<0>" in insert(PLACES, {"engine_overhead": r"\1 \g<0>"})


def test_document_of_the_project_is_that_of_its_results(tmp_path):
    """Whoever records results also writes them up."""
    results = ROOT / "benchmarks" / "results"
    document = (ROOT / "docs" / DOCUMENT).read_text()
    (tmp_path / DOCUMENT).write_text(document)
    write_report(results, tmp_path)
    assert (tmp_path / DOCUMENT).read_text() == document
    for name in read_results(results, tuple(BENCHMARKS)):
        assert Path(ROOT / "docs" / "img" / f"{name}.svg").exists()
