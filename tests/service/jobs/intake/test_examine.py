import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from capsules.data.base import Dataset, digest_of
from capsules.data.packed import unpack
from capsules.data.reader import DataFormat
from service.jobs.intake.examine import examine
from service.jobs.intake.records import Findings, Refused
from service.jobs.records import Split
from tests.support.row_files import bomb, demands, four, labelled, row_files
from tests.support.rows import as_csv, as_jsonl
from tests.support.toy_rows import toy_rows

JSONL, CSV = DataFormat.JSONL, DataFormat.CSV


def found(
    folder: Path,
    contents: Mapping[Split, bytes],
    data_format: DataFormat = JSONL,
    **wanted: Any,
) -> Findings:
    with row_files(folder, contents, data_format) as files:
        findings = examine(files, demands(**wanted))
    assert isinstance(findings, Findings), findings
    return findings


def refused(
    folder: Path,
    contents: Mapping[Split, bytes],
    data_format: DataFormat = JSONL,
    **wanted: Any,
) -> Refused:
    with row_files(folder, contents, data_format) as files:
        refusal = examine(files, demands(**wanted))
    assert isinstance(refusal, Refused), refusal
    return refusal


# --- what is found --------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("data_format", [JSONL, CSV, DataFormat.TSV])
def test_rows_are_kept_whatever_they_are_written_in(
    tmp_path: Path, data_format: DataFormat, zipped: bool
) -> None:
    rows = toy_rows()
    if data_format is JSONL:
        content = as_jsonl(rows)
    else:
        content = as_csv(rows, delimiter="\t" if data_format is DataFormat.TSV else ",")
    if zipped:
        content = gzip.compress(content)
    findings = found(tmp_path, {"train": content}, data_format)
    kept = unpack(findings.packed["train"])
    assert [{**row.inputs, "label": row.label} for row in kept] == rows
    facts = findings.facts["train"]
    assert (facts.rows, facts.bad_rows, facts.size) == (72, 0, len(content))
    assert facts.digest == digest_of(kept) == kept.digest
    assert facts.name == f"train.{data_format}"
    assert facts.classes == {"food": 24, "travel": 24, "weather": 24}
    assert (facts.duplicates, facts.conflicts, facts.overlap) == (0, 0, 0)
    assert findings.labels == ("food", "travel", "weather")
    assert findings.warnings == ()


def test_labels_that_were_asked_for_keep_their_order(tmp_path: Path) -> None:
    findings = found(tmp_path, {"train": four()}, labels=("yes", "no"))
    assert findings.labels == ("yes", "no")
    assert list(findings.facts["train"].classes) == ["yes", "no"]


def test_all_splits_are_under_the_labels_of_the_training_rows(tmp_path: Path) -> None:
    contents: dict[Split, bytes] = {
        "train": four(),
        "validation": labelled(("e", "yes"), ("h", "no")),
        "test": labelled(("f", "no"), ("g", "no")),
    }
    findings = found(tmp_path, contents)
    assert findings.facts["validation"].classes == {"no": 1, "yes": 1}
    assert findings.facts["test"].classes == {"no": 2, "yes": 0}
    assert len(unpack(findings.packed["test"], labels=findings.labels)) == 2


def test_with_validation_rows_nothing_has_to_be_split(tmp_path: Path) -> None:
    train = labelled(("a", "no"), ("b", "yes"))
    assert refused(tmp_path, {"train": train}).code == "split_too_small"
    validation = labelled(("c", "yes"), ("d", "no"))
    findings = found(tmp_path, {"train": train, "validation": validation})
    assert findings.facts["train"].rows == 2


def test_every_label_has_a_row_to_validate_on(tmp_path: Path) -> None:
    rows = [(f"{label} {number}", label) for label in ("a", "b") for number in range(5)]
    single = refused(tmp_path, {"train": labelled(*rows, ("c", "c"))})
    assert (single.code, single.field) == ("unmeasured_label", "validation")
    assert single.message.startswith("The label 'c' has training rows and no validation row, so")
    contents: dict[Split, bytes] = {"train": labelled(*rows), "validation": labelled(("x", "a"))}
    missing = refused(tmp_path, contents)
    assert missing.message.startswith("The label 'b' has")
    both: dict[Split, bytes] = {**contents, "validation": labelled(("x", "a"), ("y", "b"))}
    assert found(tmp_path, both).facts["validation"].rows == 2


def test_two_thousand_labels_are_taken(tmp_path: Path) -> None:
    rows = labelled(*[(f"text {row}", f"label-{row % 2000:04}") for row in range(4000)])
    findings = found(tmp_path, {"train": rows})
    assert len(findings.labels) == 2000
    assert set(findings.facts["train"].classes.values()) == {2}


def test_quoted_cells_may_hold_line_ends_and_a_mark_may_come_first(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf" + b'text,label\r\n"one\ntwo, ""three""",no\r\nb,no\nc,yes\nd,yes\n'
    findings = found(tmp_path, {"train": content}, CSV)
    first, *_ = unpack(findings.packed["train"])
    assert first.inputs == {"text": 'one\ntwo, "three"'}
    assert findings.facts["train"].rows == 4


# --- warnings -------------------------------------------------------------------------------


def test_a_few_bad_rows_are_left_out_and_named(tmp_path: Path) -> None:
    content = four() + b'{"text": "e"}\n\n[1]\n{"text": "f", "label": "' + b"l" * 5000 + b'"}\n'
    content += four().replace(b'"a"', b'"h"') * 4
    findings = found(tmp_path, {"train": content})
    facts = findings.facts["train"]
    assert facts.bad_rows == 4
    assert facts.problems == (
        (5, "no label: field 'label' is missing"),
        (6, "blank line"),
        (7, "the row is an array, not an object"),
        (8, "label 'label' has 5,000 characters; at most 256"),
    )
    assert findings.warnings[0] == (
        "4 rows of train cannot be used and are left out, the first at line 5: no label: field "
        "'label' is missing."
    )


def test_contradictions_and_repetitions_are_told(tmp_path: Path) -> None:
    content = labelled(
        ("a", "no"), ("a", "yes"), ("b", "no"), ("b", "no"), ("c", "yes"), ("c", "yes")
    )
    findings = found(tmp_path, {"train": content})
    facts = findings.facts["train"]
    assert (facts.duplicates, facts.conflicts) == (3, 1)
    contradiction, repetition = findings.warnings
    assert contradiction == (
        "1 text of train comes under more than one label; a capsule cannot be right about all of "
        "these."
    )
    assert repetition.startswith("3 rows of train repeat earlier ones, so some of those set aside")
    # Rows of its own for validation are not trained on, whatever repeats.
    alone = found(tmp_path, {"train": content, "validation": labelled(("d", "no"), ("e", "yes"))})
    assert alone.warnings == (contradiction,)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_some_overlap_is_told(tmp_path: Path, split: Split) -> None:
    other = labelled(("a", "no"), ("d", "yes"), ("e", "no"))
    findings = found(tmp_path, {"train": four(), split: other})
    assert findings.facts[split].overlap == 2
    assert findings.facts["train"].overlap == 0
    assert findings.warnings == (
        f"2 of the 3 rows of {split} are among the training rows too; what is measured on them "
        "says nothing about new texts.",
    )


def test_labels_without_rows_are_told(tmp_path: Path) -> None:
    labels = ("no", "yes", "1", "2", "3", "4", "5")
    (warning,) = found(tmp_path, {"train": four()}, labels=labels).warnings
    assert warning == (
        "No training row has the labels '1', '2', '3' and 2 more, so the capsule will hardly ever "
        "give it."
    )


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "data_format", "code", "said"),
    [
        (b"", JSONL, "empty_dataset", "train has no usable row"),
        (b"\n\n \n", JSONL, "empty_dataset", "train has no usable row"),
        (b"", CSV, "empty_dataset", "train has no header row"),
        (b"text,label\n", CSV, "empty_dataset", "train has no usable row"),
        (labelled(("a", "no"), ("b", "no")), JSONL, "one_class", "at least two labels"),
        (labelled(("a", "x"), ("b", "y"), ("c", "z")), JSONL, "split_too_small", "3 rows are too"),
        (b"body,label\na,no\n", CSV, "missing_column", "Rename the column, or change template"),
        (b"text,text,label\na,b,no\n", CSV, "duplicate_column", "'text' more than once"),
        (b"text\na\n", CSV, "missing_column", "has no column 'label'; its columns are ['text']"),
        (b'[{"text": "a", "label": "no"}]', JSONL, "unsupported_format", "one object a line"),
        (four().decode().encode("utf-16"), JSONL, "unreadable_file", "save it as UTF-8"),
        (b"\x1f\x8b" + four(), JSONL, "unreadable_file", "Send all of it, as UTF-8"),
        (gzip.compress(four(), mtime=0)[:-4], JSONL, "unreadable_file", "is broken after line"),
    ],
)
def test_rows_that_cannot_be_trained_on(
    tmp_path: Path, content: bytes, data_format: DataFormat, code: str, said: str
) -> None:
    refusal = refused(tmp_path, {"train": content}, data_format)
    assert (refusal.code, refusal.problems) == (code, ())
    assert said in refusal.message
    assert refusal.field == ("validation" if code == "split_too_small" else "train")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b'{"text": "a"}', "no label: field 'label' is missing"),
        (b'{"text": "a", "label": ""}', "no label: field 'label' is empty"),
        (b'{"text": "a", "label": 0.5}', "label 'label' is a number, not a string"),
        (b'{"body": "a", "label": "no"}', "field 'text' is missing"),
        (b'{"text": "\xff", "label": "no"}', "invalid UTF-8"),
        (b'{"text": "\\ud800", "label": "no"}', "malformed JSON"),
        (b"nothing", "malformed JSON"),
        (b'{"text": "a", "label": "' + b"x" * 5000 + b'"}', "has 5,000 characters; at most 256"),
    ],
)
def test_of_too_many_bad_rows_the_first_twenty_are_told(
    tmp_path: Path, row: bytes, reason: str
) -> None:
    content = labelled(("a", "no"), ("b", "yes")) + b"\n".join([row] * 50)
    refusal = refused(tmp_path, {"train": content})
    assert (refusal.code, refusal.field) == ("too_many_bad_rows", "train")
    assert refusal.message == (
        "train: 50 of the 52 rows read cannot be used, and max_bad_rows allows 13; mend or remove "
        "them."
    )
    assert len(refusal.problems) == 20
    assert refusal.problems[0].startswith("line 3: ")
    assert all(reason in problem for problem in refusal.problems)


def test_how_many_bad_rows_are_too_many_can_be_said(tmp_path: Path) -> None:
    content = four() + b"no\nno\n"
    assert found(tmp_path, {"train": content}, max_bad_rows=2).facts["train"].bad_rows == 2
    assert refused(tmp_path, {"train": content}, max_bad_rows=1).code == "too_many_bad_rows"
    assert found(tmp_path, {"train": content}, max_bad_rows=0.5).facts["train"].bad_rows == 2
    assert refused(tmp_path, {"train": content}, max_bad_rows=0.1).code == "too_many_bad_rows"


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_what_unpacks_to_more_than_is_taken(tmp_path: Path, split: Split) -> None:
    contents: dict[Split, bytes] = {"train": four(), split: bomb(1_000_000)}
    assert len(contents[split]) < 2000
    refusal = refused(tmp_path, contents, max_bytes=100_000)
    assert (refusal.code, refusal.field) == ("file_too_large", split)
    assert "100,000 bytes once it is unpacked" in refusal.message
    assert "CAPSULE_MAX_DATASET_BYTES" in refusal.message


def test_more_rows_than_are_taken(tmp_path: Path) -> None:
    refusal = refused(tmp_path, {"train": four() * 100}, max_rows=399)
    assert (refusal.code, refusal.field) == ("too_many_rows", "train")
    assert "CAPSULE_MAX_DATASET_ROWS" in refusal.message


def test_more_labels_than_a_capsule_has(tmp_path: Path) -> None:
    refusal = refused(tmp_path, {"train": four()}, max_labels=1)
    assert (refusal.code, refusal.field) == ("too_many_labels", "train")
    assert "label_field" in refusal.message


@pytest.mark.parametrize("split", ["validation", "test"])
def test_labels_that_are_not_trained_on(tmp_path: Path, split: Split) -> None:
    other = labelled(("e", "yes"), ("f", "maybe"), ("g", "maybe"), ("h", "never"))
    refusal = refused(tmp_path, {"train": four(), split: other})
    assert (refusal.code, refusal.field) == ("unknown_label", split)
    assert refusal.message == (
        f"{split} has 3 rows with a label that the capsule will not know: 'maybe', 'never'; add "
        "rows of that label to train, or leave these out."
    )


@pytest.mark.parametrize("split", ["validation", "test"])
def test_rows_that_measure_nothing(tmp_path: Path, split: Split) -> None:
    # Another label does not make another text of it.
    other = labelled(("a", "yes"), ("d", "yes"))
    refusal = refused(tmp_path, {"train": four(), split: other})
    assert (refusal.code, refusal.field) == (f"{split}_leaks", split)
    assert refusal.message.startswith(f"All 2 rows of {split} are among the training rows too")


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"label_field": "text"}, "label_field"),
        ({"labels": ("no", "no")}, "labels"),
        ({"labels": ("no", " yes")}, "labels"),
        ({"labels": ("no", "\u200b")}, "labels"),
    ],
)
def test_options_that_no_row_can_satisfy(
    tmp_path: Path, wanted: dict[str, Any], field: str
) -> None:
    refusal = refused(tmp_path, {"train": four()}, **wanted)
    assert (refusal.code, refusal.field) == ("invalid_option", field)


def test_labels_are_held_to_those_that_were_asked_for(tmp_path: Path) -> None:
    refusal = refused(tmp_path, {"train": four()}, labels=("no", "maybe"))
    assert refusal.code == "too_many_bad_rows"
    assert refusal.problems[0] == "line 3: label 'yes' is not one of the 2 labels given"


def test_the_same_rows_are_packed_into_the_same_bytes(tmp_path: Path) -> None:
    one = found(tmp_path, {"train": four()})
    other = found(tmp_path, {"train": gzip.compress(four())})
    assert one.packed == other.packed
    assert isinstance(unpack(one.packed["train"]), Dataset)
