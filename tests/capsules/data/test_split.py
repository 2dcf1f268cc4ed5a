import pytest
from hypothesis import given, strategies as st

from capsules.core import Example
from capsules.data.base import Dataset
from capsules.data.split import split
from capsules.errors import DataError, OptionError


def dataset_of(counts: dict[str, int], **options) -> Dataset:
    rows = [
        Example({"text": f"{label} {i}"}, label)
        for label, count in counts.items()
        for i in range(count)
    ]
    return Dataset.of(rows, **options)


def texts(dataset: Dataset) -> list[str]:
    return [example.inputs["text"] for example in dataset]


def test_shares_are_stratified():
    parts = split(dataset_of({"a": 700, "b": 200, "c": 100}), fraction=0.1)
    assert parts.validation.counts() == {"a": 70, "b": 20, "c": 10}
    assert parts.train.counts() == {"a": 630, "b": 180, "c": 90}


def test_a_rare_label_gives_one_row_and_a_single_row_stays_in_train():
    parts = split(dataset_of({"common": 100, "rare": 2, "single": 1}), fraction=0.1)
    assert parts.validation.counts() == {"common": 10, "rare": 1, "single": 0}
    assert parts.train.counts() == {"common": 90, "rare": 1, "single": 1}


def test_rare_labels_only():
    parts = split(dataset_of({"a": 3, "b": 2}), fraction=0.1)
    assert parts.validation.counts() == {"a": 1, "b": 1}


def test_parts_are_disjoint_whole_in_order_and_keep_all_labels():
    whole = dataset_of({"b": 30, "a": 12}, labels=["b", "unused", "a"])
    parts = split(whole, fraction=0.2, seed=3)
    train, validation = texts(parts.train), texts(parts.validation)
    assert sorted(train + validation) == sorted(texts(whole))
    order = {text: i for i, text in enumerate(texts(whole))}
    for part in (train, validation):
        assert part == sorted(part, key=order.__getitem__)
    assert parts.train.labels == parts.validation.labels == ("b", "unused", "a")


def test_the_seed_decides():
    whole = dataset_of({"a": 60, "b": 60, "rare": 5})
    first, again, other = (split(whole, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.validation.digest != other.validation.digest
    rare = {split(whole, seed=seed).validation.examples[-1].inputs["text"] for seed in range(12)}
    assert len(rare) > 1


def test_one_label_is_refused():
    with pytest.raises(DataError) as caught:
        split(dataset_of({"a": 50}))
    assert caught.value.code == "one_class"


@pytest.mark.parametrize("counts", [{"a": 2, "b": 1}, {"a": 1, "b": 1, "c": 1}])
def test_too_few_rows_are_refused_with_the_remedy(counts):
    with pytest.raises(DataError, match=r"3 rows are too few to split.*validation file") as caught:
        split(dataset_of(counts))
    assert caught.value.code == "split_too_small"


@pytest.mark.parametrize("fraction", [0.0, -0.1, 0.51, 1.0, float("nan")])
def test_a_fraction_out_of_range_is_refused(fraction):
    with pytest.raises(OptionError) as caught:
        split(dataset_of({"a": 9, "b": 9}), fraction=fraction)
    assert caught.value.field == "fraction"


@given(
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=12),
    fraction=st.floats(0.01, 0.5),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_label_with_two_rows_is_on_both_sides(counts, fraction, seed):
    whole = dataset_of({f"label {i}": count for i, count in enumerate(counts)})
    if sum(count > 1 for count in counts) < 2:
        with pytest.raises(DataError):
            split(whole, fraction=fraction, seed=seed)
        return
    parts = split(whole, fraction=fraction, seed=seed)
    assert len(parts.train) + len(parts.validation) == len(whole)
    for label, count in whole.counts().items():
        assert parts.train.counts()[label] >= 1
        assert (parts.validation.counts()[label] >= 1) == (count > 1)
        assert parts.validation.counts()[label] <= max(1, round(count * fraction + 1))
