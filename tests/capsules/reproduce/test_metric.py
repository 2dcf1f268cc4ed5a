import pytest
from sklearn.metrics import accuracy_score, f1_score

from capsules.evaluation.metrics import Report
from capsules.reproduce.metric import score

CB = ("entailment", "contradiction", "neutral")
TRUTH = ["entailment", "contradiction", "contradiction", "neutral", "entailment", "neutral"]
GIVEN = ["entailment", "contradiction", "entailment", "neutral", "entailment", "contradiction"]
ANSWERS = (["True", "False", "True", "True", "False"], ["True", "True", "False", "True", "False"])


def test_accuracy():
    assert score("accuracy", Report.from_labels(TRUTH, GIVEN, labels=CB)) == pytest.approx(4 / 6)


def test_cb_is_scored_by_the_mean_of_accuracy_and_macro_f1():
    expected = (accuracy_score(TRUTH, GIVEN) + f1_score(TRUTH, GIVEN, average="macro")) / 2
    found = score("accuracy-and-f1", Report.from_labels(TRUTH, GIVEN, labels=CB))
    assert found == pytest.approx(expected)
    assert found != pytest.approx(accuracy_score(TRUTH, GIVEN))


def test_multirc_is_scored_by_f1_of_the_right_answers():
    found = score("f1a", Report.from_labels(*ANSWERS, labels=("False", "True")))
    assert found == pytest.approx(f1_score(*ANSWERS, pos_label="True"))
    # Two of three said to be right are, and two of the three that are were found.
    assert found == pytest.approx(2 / 3)


def test_no_answer_said_to_be_right_scores_nothing():
    report = Report.from_labels(["True", "False"], ["False", "False"], labels=("False", "True"))
    assert score("f1a", report) == 0.0
