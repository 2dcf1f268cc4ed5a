"""What events say to people."""

from capsules.training.events import EpochReport
from service.jobs.records import JobResult
from service.store.base import DEFAULT_ALIAS


def epoch_over(report: EpochReport) -> str:
    """Say what an epoch has brought."""
    best = ", the best so far" if report.best else ""
    return (
        f"Epoch {report.epoch} took {report.seconds:.1f} s: training loss {report.train_loss:.4f}, "
        f"validation loss {report.validation_loss:.4f}, validation accuracy "
        f"{report.validation_accuracy:.1%}{best}."
    )


def outcome(result: JobResult) -> str:
    """Say what a job came to."""
    version = f"{result.task}@{result.version}"
    if result.activated:
        return f"{version} is registered, and {result.task} means it from now on. {result.reason}"
    return (
        f"{version} is registered, and {result.task} does not mean it: point the alias "
        f"{DEFAULT_ALIAS} at it to change that. {result.reason}"
    )


def goes_on(epoch: int) -> str:
    """Say where a job begins whose last finished epoch is this one, or 0."""
    return f"goes on after epoch {epoch}" if epoch else "begins with its first epoch"


def reached(epoch: int) -> str:
    """Say how far a job has come whose last finished epoch is this one, or 0."""
    return f"after epoch {epoch}" if epoch else "in the first epoch"
