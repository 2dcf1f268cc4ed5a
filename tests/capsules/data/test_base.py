import hashlib

import pytest

from capsules.core import Example
from capsules.data.base import Dataset, RowProblem
from capsules.errors import DataError


def example(text: str, label: str) -> Example:
    return Example({"text": text}, label)


def test_labels_are_sorted_unless_their_order_is_given():
    rows = [example("a", "no"), example("b", "maybe"), example("c", "yes")]
    assert Dataset.of(rows).labels == ("maybe", "no", "yes")
    assert Dataset.of(rows, labels=["yes", "no", "maybe"]).labels == ("yes", "no", "maybe")


def test_counts_follow_the_labels_and_show_zero():
    rows = [example("a", "x"), example("b", "y"), example("c", "x")]
    counts = Dataset.of(rows, labels=["z", "y", "x"]).counts()
    assert list(counts.items()) == [("z", 0), ("y", 1), ("x", 2)]


def test_keeps_order_and_is_iterable():
    rows = [example("b", "x"), example("a", "y")]
    dataset = Dataset.of(rows)
    assert len(dataset) == 2
    assert list(dataset) == rows


def test_digest_is_the_documented_one():
    rows = [Example({"b": "é", "a": "1"}, "x"), Example({"a": "2", "b": "3"}, "y")]
    canonical = '["x",[["a","1"],["b","\\u00e9"]]]\n["y",[["a","2"],["b","3"]]]\n'
    assert Dataset.of(rows).digest == hashlib.sha256(canonical.encode()).hexdigest()


def test_digest_ignores_field_order_but_not_content_row_order_or_boundaries():
    one, two = Example({"a": "1", "b": "2"}, "x"), Example({"a": "3", "b": "4"}, "y")
    digest = Dataset.of([one, two]).digest
    assert Dataset.of([Example({"b": "2", "a": "1"}, "x"), two]).digest == digest
    others = [
        [two, one],
        [one],
        [Example({"a": "12", "b": ""}, "x"), two],
        [Example({"a": "1", "b": "2"}, "y"), two],
        [Example({"b": "1", "a": "2"}, "x"), two],
    ]
    assert digest not in {Dataset.of(rows).digest for rows in others}


def test_no_rows_are_refused():
    with pytest.raises(DataError, match="no usable row") as caught:
        Dataset.of([])
    assert caught.value.code == "empty_dataset"


def test_a_label_outside_the_given_ones_is_refused_by_name():
    with pytest.raises(DataError, match="'ham'") as caught:
        Dataset.of([example("a", "ham")], labels=["spam", "eggs"])
    assert (caught.value.code, caught.value.field) == ("unknown_label", "labels")


def test_subset_keeps_labels_and_drops_problems():
    dataset = Dataset.of(
        [example("a", "x"), example("b", "y"), example("c", "z")],
        problems=[RowProblem(4, "blank line")],
        bad_rows=1,
    )
    part = dataset.subset([2, 0])
    assert [row.inputs["text"] for row in part] == ["c", "a"]
    assert part.labels == ("x", "y", "z")
    assert (part.problems, part.bad_rows) == ((), 0)


def test_one_class_is_refused_even_if_more_labels_are_named():
    dataset = Dataset.of([example("a", "x"), example("b", "x")], labels=["w", "x"])
    with pytest.raises(DataError, match="All 2 rows have the label 'x'") as caught:
        dataset.require_classes()
    assert caught.value.code == "one_class"
    Dataset.of([example("a", "x"), example("b", "y")]).require_classes()


def test_what_cannot_be_split_is_refused_without_splitting_it():
    rows = [example("a", "x"), example("b", "x"), example("c", "y")]
    for too_few, code in [(rows[:2], "one_class"), (rows, "split_too_small")]:
        with pytest.raises(DataError) as caught:
            Dataset.of(too_few).require_divisible()
        assert caught.value.code == code
    Dataset.of([*rows, example("d", "y")]).require_divisible()


def test_a_problem_reads_as_a_line_and_a_reason():
    assert str(RowProblem(7, "blank line")) == "line 7: blank line"
