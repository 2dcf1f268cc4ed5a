"""Whether a new version is served under its task's bare name, and why."""

from dataclasses import dataclass

from service.jobs.records import Activation
from service.jobs.spec import JobSpec, Metric

METRIC_NAMES: dict[Metric, str] = {"accuracy": "accuracy", "macro_f1": "macro F1"}
DIGITS = 4


@dataclass(frozen=True, slots=True)
class Standing:
    """The version that is served now, and how it does on the new version's validation rows.

    Attributes:
        version: its number.
        score: by the job's metric; None where it was not measured or cannot be.
        broken: why it cannot run here, as the end of a sentence.
        incomparable: why it can run, and not on these rows, as the end of a sentence.
    """

    version: int
    score: float | None = None
    broken: str | None = None
    incomparable: str | None = None


def needs_comparison(spec: JobSpec) -> bool:
    """Whether the served version has to be measured for a decision."""
    return spec.activate and spec.min_metric is None


def decide(spec: JobSpec, score: float, served: Standing | None) -> Activation:
    """Decide on a new version.

    Args:
        spec: asks for a least score, or for a better one than the served version's.
        score: of the new version on its validation rows, by the metric of `spec`.
        served: the version that is served; None for none.
    """
    activate, reason = judged(spec, score, served)
    return Activation(activate, None if served is None else served.version, reason)


def judged(spec: JobSpec, score: float, served: Standing | None) -> tuple[bool, str]:
    """Whether to serve it, and why as a sentence."""
    if not spec.activate:
        return False, "The job asked to keep the version aside, by activate: false."
    its = f"Its validation {METRIC_NAMES[spec.metric]} is {score:.{DIGITS}f}"
    if spec.min_metric is not None:
        if score >= spec.min_metric:
            return True, f"{its}, at least the min_metric of {spec.min_metric:g}."
        return False, f"{its}, less than the min_metric of {spec.min_metric:g}."
    if served is None:
        return True, f"{its}, and no version of the task was served."
    number = f"version {served.version}"
    if served.broken is not None:
        return True, f"{its}, and {number}, served until now, {served.broken}."
    if served.incomparable is not None or served.score is None:
        why = served.incomparable or "was not measured"
        return False, f"{its}, but {number}, served now, {why}, so the two cannot be compared."
    compared = f"the {served.score:.{DIGITS}f} of {number} on the same rows"
    if score > served.score:
        return True, f"{its}, better than {compared}."
    return False, f"{its}, not better than {compared}."
