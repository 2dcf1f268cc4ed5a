import gzip

import pytest

from capsules.errors import DataError, DataFault
from capsules.reproduce.splits import read, require
from tests.capsules.reproduce.sets import CB_LABELS, TASKS, rows, write_file, write_set

CB = TASKS["cb"]


def refused(data, name="cb"):
    with pytest.raises(DataError) as caught:
        require(TASKS[name], data).splits(0)
    return caught.value


def test_validation_is_a_tenth_and_the_validation_file_is_the_test(data):
    source = require(CB, data)
    splits = source.splits(0)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (36, 4, 12)
    assert splits.train.labels == splits.test.labels == CB_LABELS
    learned = {example.inputs["premise"] for example in splits.train}
    assert len(learned) > 1
    assert splits.test.examples == source.validation.examples


def test_seeds_split_differently_and_repeatably(data):
    source = require(CB, data)
    assert source.splits(1).digest == require(CB, data).splits(1).digest
    assert source.splits(1).digest != source.splits(2).digest


def test_set_with_a_labelled_test_file_keeps_its_parts(data):
    splits = require(TASKS["trec"], data).splits(5)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (40, 12, 12)
    assert splits.train.labels == ("no", "yes")


def test_test_file_without_labels_is_not_read(data):
    """SuperGLUE is published with one."""
    write_file(data / "cb", "test", [{"premise": "p", "hypothesis": "h"}])
    assert require(CB, data).test is None


def test_label_numbers_become_words(data):
    numbers = {word: number for number, word in enumerate(CB_LABELS)}
    for part, count in (("train", 40), ("validation", 12)):
        lines = [{**row, "label": numbers[row["label"]]} for row in rows(CB, count)]
        write_file(data / "cb", part, lines)
    splits = require(CB, data).splits(0)
    assert set(splits.train.counts()) == set(CB_LABELS)
    assert min(splits.train.counts().values()) > 0


def test_fewer_rows_than_published_are_noted(data):
    assert require(CB, data).note == "40 of the 250 published training rows"
    assert require(TASKS["trec"], data).note is None


def test_absent_set(tmp_path):
    assert read(CB, tmp_path) is None
    write_file(tmp_path / "cb", "train", rows(CB, 9))
    assert read(CB, tmp_path) is None
    error = refused(tmp_path)
    assert "has no train.jsonl.gz and validation.jsonl.gz" in error.message


def test_plain_files_do_too(tmp_path):
    folder = write_set(tmp_path, "cb")
    for part in ("train", "validation"):
        packed = folder / f"{part}.jsonl.gz"
        (folder / f"{part}.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    assert len(require(CB, tmp_path).train) == 40


def test_missing_column_is_named(data):
    lines = [{"premise": "p", "claim": "h", "label": "neutral"}]
    path = write_file(data / "cb", "train", lines)
    error = refused(data)
    assert error.code == DataFault.MISSING_COLUMN
    assert error.message.startswith(f"{path} has no column 'hypothesis'")
    assert "it has: premise, claim, label" in error.message
    assert "\n" not in error.message


def test_missing_label_is_named(data):
    write_file(data / "cb", "train", [{"premise": "p", "hypothesis": "h"}])
    assert "no column 'label'" in refused(data).message


def test_one_bad_row_is_one_too_many(data):
    lines = rows(CB, 40)
    lines[7]["premise"] = " "
    write_file(data / "cb", "train", lines)
    error = refused(data)
    assert error.code == DataFault.TOO_MANY_BAD_ROWS
    assert "line 8: field 'premise' is empty" in error.message


def test_strange_label_is_named(data):
    write_file(data / "cb", "validation", [{**rows(CB, 1)[0], "label": "maybe"}])
    error = refused(data)
    assert error.code == DataFault.UNKNOWN_LABEL
    assert "'maybe'; cb has: entailment, contradiction, neutral." in error.message


def test_one_class(data):
    lines = [{**row, "label": "neutral"} for row in rows(CB, 9)]
    write_file(data / "cb", "train", lines)
    error = refused(data)
    assert error.code == DataFault.ONE_CLASS
    assert error.message.startswith("cb: All 9 rows have the label 'neutral'")


def test_class_missing_from_validation(data):
    lines = [row for row in rows(CB, 40) if row["label"] != "neutral"]
    write_file(data / "cb", "train", [*lines, rows(CB, 3)[2]])
    error = refused(data)
    assert error.code == DataFault.SPLIT_TOO_SMALL
    assert "cb: no validation row has the label 'neutral'" in error.message


def test_class_missing_from_training(data):
    lines = [row for row in rows(CB, 40) if row["label"] != "neutral"]
    write_file(data / "cb", "train", lines)
    assert "cb: no training row has the label 'neutral'" in refused(data).message


def test_too_few_rows_to_split(data):
    write_file(data / "cb", "train", rows(CB, 3))
    error = refused(data)
    assert error.code == DataFault.SPLIT_TOO_SMALL
    assert error.message.startswith("cb: 3 rows are too few")


def test_empty_file(data):
    path = write_file(data / "cb", "validation", [])
    error = refused(data)
    assert error.code == DataFault.EMPTY_DATASET
    assert str(path) in error.message
