"""The number that methods are compared by on a set."""

from typing import Literal

from capsules.evaluation.metrics import Report

Metric = Literal["accuracy", "accuracy-and-f1", "f1a"]

NAMES: dict[Metric, str] = {
    "accuracy": "accuracy",
    "accuracy-and-f1": "mean of accuracy and macro-F1",
    "f1a": "F1 of the right answers",
}
# The label of an answer that is right, which F1a is about.
POSITIVE = "True"


def score(metric: Metric, report: Report) -> float:
    """One number between 0 and 1.

    - `accuracy`: share of the rows that are right;
    - `accuracy-and-f1`: its mean with the macro-F1, as SuperGLUE scores CB;
    - `f1a`: F1 of the label `True` over all answers of all questions, as it scores MultiRC.
    """
    match metric:
        case "accuracy":
            return report.accuracy
        case "accuracy-and-f1":
            return (report.accuracy + report.macro_f1) / 2
        case "f1a":
            return next(one.f1 for one in report.per_class if one.label == POSITIVE)
