import json

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from capsules.errors import DataError
from capsules.evaluation.metrics import ClassScore, Report

# Ten rows worked by hand: three labels in an order that is not alphabetical, and one that is absent.
LABELS = ["cat", "ant", "bee", "fox"]
TRUTH = ["cat", "cat", "cat", "cat", "ant", "ant", "ant", "bee", "bee", "bee"]
GUESS = ["cat", "cat", "cat", "ant", "ant", "ant", "bee", "bee", "cat", "ant"]


@pytest.fixture
def report() -> Report:
    return Report.from_labels(TRUTH, GUESS, labels=LABELS)


def test_values_worked_by_hand(report):
    assert report.examples == 10
    assert report.accuracy == pytest.approx(0.6)
    assert report.labels == ("cat", "ant", "bee", "fox")
    cat, ant, bee, fox = report.per_class
    assert (cat.precision, cat.recall, cat.f1, cat.support) == pytest.approx(
        (3 / 4, 3 / 4, 3 / 4, 4)
    )
    assert (ant.precision, ant.recall, ant.f1, ant.support) == pytest.approx(
        (2 / 4, 2 / 3, 4 / 7, 3)
    )
    assert (bee.precision, bee.recall, bee.f1, bee.support) == pytest.approx(
        (1 / 2, 1 / 3, 2 / 5, 3)
    )
    assert fox == ClassScore(label="fox", precision=0.0, recall=0.0, f1=0.0, support=0)
    # (3/4 + 4/7 + 2/5) / 3: the absent fox is left out.
    assert report.macro_f1 == pytest.approx(241 / 420)


def test_confusion_has_true_rows_and_predicted_columns(report):
    assert report.confusion == ((3, 1, 0, 0), (0, 2, 1, 0), (1, 1, 1, 0), (0, 0, 0, 0))


def test_a_label_that_is_predicted_but_never_true_counts_as_zero():
    report = Report.from_labels(["a", "a"], ["a", "b"], labels=["a", "b", "c"])
    assert report.per_class[0].f1 == pytest.approx(2 / 3)
    assert report.macro_f1 == pytest.approx(1 / 3)


def test_perfect_and_hopeless():
    perfect = Report.from_labels(["a", "b"], ["a", "b"], labels=["a", "b"])
    assert (perfect.accuracy, perfect.macro_f1) == (1.0, 1.0)
    hopeless = Report.from_labels(["a", "b"], ["b", "a"], labels=["a", "b"])
    assert (hopeless.accuracy, hopeless.macro_f1) == (0.0, 0.0)


def test_one_row():
    report = Report.from_labels(["b"], ["b"], labels=["a", "b"])
    assert (report.examples, report.accuracy, report.macro_f1) == (1, 1.0, 1.0)
    assert report.confusion == ((0, 0), (0, 1))


def test_round_trip_through_json(report):
    assert Report.model_validate_json(report.model_dump_json()) == report
    plain = json.loads(report.model_dump_json())
    assert set(plain) == {"examples", "accuracy", "macro_f1", "per_class", "confusion"}
    assert Report.model_validate(plain) == report


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"confusion": [[10]]}, "4 by 4"),
        ({"confusion": [[1, 2], [3, 4]]}, "4 by 4"),
        ({"examples": 11}, "add up to examples"),
        ({"accuracy": float("nan")}, "finite"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_report_that_does_not_add_up_is_refused(report, change, words):
    with pytest.raises(ValidationError, match=words):
        Report.model_validate(report.model_dump() | change)


def test_a_report_is_frozen(report):
    with pytest.raises(ValidationError, match="frozen"):
        report.accuracy = 1.0


@pytest.mark.parametrize(
    ("truth", "predicted", "code", "field"),
    [
        ([], [], "empty_dataset", None),
        (["a"], ["a", "a"], "length_mismatch", "predicted"),
        (["z"], ["a"], "unknown_label", "truth"),
        (["a"], ["z"], "unknown_label", "predicted"),
    ],
)
def test_unusable_arguments_are_refused(truth, predicted, code, field):
    with pytest.raises(DataError) as caught:
        Report.from_labels(truth, predicted, labels=["a", "b"])
    assert (caught.value.code, caught.value.field) == (code, field)


PAIRS = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")), min_size=1)


@given(pairs=PAIRS)
def test_marginals_hold_for_any_predictions(pairs):
    truth, predicted = [t for t, _ in pairs], [p for _, p in pairs]
    report = Report.from_labels(truth, predicted, labels=list("edcba"))
    for score, row in zip(report.per_class, report.confusion, strict=True):
        assert score.support == sum(row) == truth.count(score.label)
    columns = [sum(column) for column in zip(*report.confusion, strict=True)]
    assert columns == [predicted.count(label) for label in "edcba"]
    right = sum(t == p for t, p in pairs)
    assert report.accuracy == pytest.approx(right / len(pairs))
    assert sum(report.confusion[i][i] for i in range(5)) == right
