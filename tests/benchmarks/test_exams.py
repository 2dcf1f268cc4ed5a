import gzip
import json

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.exams import Exam, accuracy_figures, accuracy_series, exam, exams
from capsules import zoo
from capsules.artefact.file import parse

LABELS = ["no", "yes"]


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps({"text": t, "label": label}) + "\n" for t, label in rows)


@pytest.fixture
def shipped():
    return [parse(file.read_bytes()).manifest for file in zoo.artefacts()]


def test_rows_are_drawn_once_and_for_all(tmp_path):
    path = tmp_path / "test.jsonl.gz"
    write_rows(path, [(f"text {n}", LABELS[n % 2]) for n in range(20)])
    found = exam("task", b"file", LABELS, path, 5)
    assert found == exam("task", b"file", LABELS, path, 5)
    assert len(set(found.texts)) == 5
    for text, label in zip(found.texts, found.expected, strict=True):
        assert int(text.split()[1]) % 2 == label
    assert len(exam("task", b"file", LABELS, path, 50).texts) == 20


def test_label_that_the_capsule_does_not_know_is_no_row_for_it(tmp_path):
    path = tmp_path / "test.jsonl.gz"
    write_rows(path, [("text", "maybe")])
    with pytest.raises(BenchmarkError, match="'maybe', which the capsule of task"):
        exam("task", b"file", LABELS, path, 5)


def test_shipped_capsules_are_examined_where_their_data_is(tmp_path, shipped):
    there, *missing = shipped
    write_rows(tmp_path / there.task / "test.jsonl.gz", [("text", there.labels[1])])
    found, notes = exams(tmp_path, there.backbone.fingerprint, 5)
    assert [(one.task, one.expected) for one in found] == [(there.task, (1,))]
    assert [note.split()[2] for note in notes] == [one.task for one in missing]


def test_without_data_or_on_another_backbone_there_is_none(tmp_path, shipped):
    assert exams(None, shipped[0].backbone.fingerprint, 5) == (
        [],
        ["Accuracy is left out: the data sets are not here."],
    )
    found, notes = exams(tmp_path, "another", 5)
    assert found == []
    assert "another backbone" in notes[0]


def test_differences_of_answers_are_told():
    every = [Exam("task", b"", ("a", "b", "c", "d"), (0, 0, 1, 1))]
    exact = [[(0.9, 0.1), (0.6, 0.4), (0.2, 0.8), (0.7, 0.3)]]
    other = [[(0.8, 0.2), (0.4, 0.6), (0.2, 0.8), (0.7, 0.3)]]
    figures = {one.name: one for one in accuracy_figures(every, "int8", other, exact)}
    values = {name: one.value for name, one in figures.items()}
    assert values == {
        "int8: accuracy lost on task": 25.0,
        "int8: rows whose label changes": 25.0,
        "int8: mean difference of a probability": pytest.approx(0.075),
        "int8: largest difference of a probability": pytest.approx(0.2),
    }
    told = {one.side: one.samples for one in accuracy_series(every, {"x": exact, "y": other})}
    assert told == {"x": (75.0,), "y": (50.0,)}
