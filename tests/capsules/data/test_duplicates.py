from capsules.core import Example
from capsules.data.base import Dataset
from capsules.data.duplicates import DuplicateGroup, duplicates, overlap


def dataset_of(*rows: tuple[str, str]) -> Dataset:
    return Dataset.of([Example({"text": text}, label) for text, label in rows])


def test_repeated_and_conflicting_rows_are_told_apart():
    dataset = dataset_of(("b", "y"), ("a", "x"), ("b", "x"), ("c", "x"), ("a", "x"), ("b", "y"))
    groups = duplicates(dataset)
    assert groups == (DuplicateGroup((0, 2, 5), ("x", "y")), DuplicateGroup((1, 4), ("x",)))
    assert [group.conflicting for group in groups] == [True, False]


def test_distinct_rows_have_no_groups():
    assert duplicates(dataset_of(("a", "x"), ("A", "x"), ("a ", "x"))) == ()


def test_inputs_are_compared_by_name_in_any_order():
    rows = [
        Example({"p": "1", "q": "2"}, "x"),
        Example({"q": "2", "p": "1"}, "x"),
        Example({"p": "2", "q": "1"}, "x"),
    ]
    assert duplicates(Dataset.of(rows)) == (DuplicateGroup((0, 1), ("x",)),)


def test_overlap_gives_positions_in_the_other_set_whatever_the_label():
    train = dataset_of(("a", "x"), ("b", "y"))
    assert overlap(train, dataset_of(("c", "x"), ("b", "x"), ("a", "x"), ("b", "y"))) == (1, 2, 3)
    assert overlap(train, dataset_of(("c", "x"))) == ()
