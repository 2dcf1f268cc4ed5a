import pytest

from service.jobs.records import Activation
from service.jobs.spec import JobSpec
from service.worker.activation import Standing, decide, needs_comparison

BROKEN = Standing(4, broken="was trained on another backbone and cannot run on this one")
OTHER = Standing(4, incomparable="takes the inputs premise and hypothesis, which the rows lack")
UNMEASURED = Standing(4)


@pytest.mark.parametrize(
    ("options", "score", "served", "activate", "reason"),
    [
        ({}, 0.5, None, True, "0.5000, and no version of the task was served"),
        ({}, 0.9, Standing(4, 0.8), True, "better than the 0.8000 of version 4 on the same rows"),
        ({}, 0.8, Standing(4, 0.8), False, "not better than the 0.8000 of version 4"),
        ({}, 0.7, Standing(4, 0.8), False, "not better than the 0.8000 of version 4"),
        ({}, 0.1, BROKEN, True, "version 4, served until now, was trained on another backbone"),
        ({}, 0.9, OTHER, False, "takes the inputs premise and hypothesis"),
        ({}, 0.9, UNMEASURED, False, "cannot be compared"),
        ({"min_metric": 0.8}, 0.8, Standing(4, 0.9), True, "at least the min_metric of 0.8"),
        ({"min_metric": 0.8}, 0.8, None, True, "at least the min_metric of 0.8"),
        ({"min_metric": 0.8}, 0.79, None, False, "less than the min_metric of 0.8"),
        ({"min_metric": 0.8}, 0.79, BROKEN, False, "less than the min_metric of 0.8"),
        ({"activate": False}, 1.0, None, False, "asked to keep the version aside"),
        ({"activate": False, "min_metric": 0.1}, 1.0, OTHER, False, "activate: false"),
    ],
)
def test_the_decision(options, score, served, activate, reason) -> None:
    decision = decide(JobSpec(task="tiny", **options), score, served)
    expected = None if served is None else served.version
    assert decision == Activation(activate, expected, decision.reason)
    assert reason in decision.reason
    assert decision.reason.endswith(".")


@pytest.mark.parametrize(("metric", "name"), [("accuracy", "accuracy"), ("macro_f1", "macro F1")])
def test_the_reason_names_the_metric(metric, name) -> None:
    decision = decide(JobSpec(task="tiny", metric=metric), 0.25, None)
    assert decision.reason.startswith(f"Its validation {name} is 0.2500")


@pytest.mark.parametrize(
    ("options", "needed"),
    [({}, True), ({"min_metric": 0.0}, False), ({"activate": False}, False)],
)
def test_the_served_version_is_measured_only_where_it_matters(options, needed) -> None:
    assert needs_comparison(JobSpec(task="tiny", **options)) is needed
