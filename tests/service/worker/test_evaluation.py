import json
import random

import pytest

from capsules.evaluation.metrics import Report
from service.worker.evaluation import MAX_CONFUSIONS, Evaluation


def drawn(labels: int, rows: int) -> tuple[list[str], list[str], list[str]]:
    names = [f"label {number}" for number in range(labels)]
    chance = random.Random(0)
    truth = [chance.choice(names) for _ in range(rows)]
    return names, truth, [one if chance.random() < 0.6 else chance.choice(names) for one in truth]


@pytest.mark.parametrize("labels", [2, 7, 100])
def test_it_says_what_the_report_of_the_library_says(labels: int) -> None:
    names, truth, predicted = drawn(labels, 150)
    document = Evaluation.of(truth, predicted, names).document("test")
    assert document.pop("split") == "test"
    document.pop("confusions")
    report = Report.from_labels(truth, predicted, labels=names)
    assert Report.model_validate_json(json.dumps(document)) == report


def test_with_many_labels_it_has_the_largest_confusions_alone() -> None:
    names, truth, predicted = drawn(101, 3000)
    document = Evaluation.of(truth, predicted, names).document("validation")
    assert document["confusion"] is None
    assert document["examples"] == 3000
    report = Report.from_labels(truth, predicted, labels=names)
    assert document["macro_f1"] == report.macro_f1
    counts = [one["examples"] for one in document["confusions"]]
    assert counts == sorted(counts, reverse=True)
    assert len(counts) == MAX_CONFUSIONS
    first = document["confusions"][0]
    row, column = names.index(first["label"]), names.index(first["predicted"])
    assert report.confusion[row][column] == first["examples"]
    assert row != column


def test_ten_thousand_labels_stay_small() -> None:
    names, truth, predicted = drawn(10_000, 20_000)
    document = Evaluation.of(truth, predicted, names).document("validation")
    assert len(json.dumps(document)) < 2_000_000


def test_the_score_is_the_metric_that_was_asked_for() -> None:
    evaluation = Evaluation.of(["a", "a", "b"], ["a", "b", "b"], ["a", "b"])
    assert evaluation.score("accuracy") == evaluation.scores.accuracy == pytest.approx(2 / 3)
    assert evaluation.score("macro_f1") == evaluation.scores.macro_f1 == pytest.approx(2 / 3)
    perfect = Evaluation.of(["a", "b"], ["a", "b"], ["a", "b", "never seen"])
    assert (perfect.scores.macro_f1, perfect.document("test")["confusions"]) == (1.0, [])
