"""`capsule jobs show`: all that is known of a job."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table

from capsules.cli.output import Output, cell, count, pairs_table
from service.cli.client import Client
from service.cli.jobs.replies import Job
from service.cli.jobs.requests import Jobs
from service.cli.jobs.times import moment

ROWS = ("file", "name", "rows", "left out", "labels", "repeated", "conflicting", "also in train")
MAX_LABELS = 50
EPOCHS = ("epoch", "train loss", "validation loss", "accuracy", "", "seconds")


def run(client: Client, job: str, output: Output) -> None:
    """Show a job.

    Raises:
        UsageError: that is no job's id.
        ServerError: it does not exist, or there is no server.
    """
    found = Jobs(client).get(job)
    output.show(
        document=found.model_dump(mode="json"),
        rows=lines(found),
        table=lambda: page(found),
    )


def facts(job: Job) -> Iterator[tuple[str, object]]:
    """What there is to say in a name and a value, in the order of a job's life."""
    yield "id", job.id
    yield "task", job.task
    yield "status", job.status
    yield from given(
        {
            "queue_position": job.queue_position,
            "description": job.description or None,
            "backbone": job.model,
            "created_at": moment(job.created_at),
            "started_at": moment(job.started_at),
            "finished_at": moment(job.finished_at),
            "run": job.run,
            "crashes": job.crashes or None,
            **job.hyperparameters,
        }
    )
    if job.progress is not None and not job.ended:
        progress = job.progress
        yield "epoch", f"{progress.epoch}/{progress.epochs}"
        yield "step", f"{progress.step}/{progress.steps}"
        yield from given({"loss": progress.loss, "seconds_left": progress.seconds_left})
    if job.error is not None:
        yield "error", f"{job.error.message} [{job.error.code}]"
    if job.result is not None:
        yield from given({"version": job.fine_tuned_model, "digest": job.result.digest})
        yield "activated", job.result.activated
        yield "reason", job.result.reason
        yield from job.result.metrics.items()
    for name, value in job.metadata.items():
        yield f"metadata.{name}", value


def given(values: dict[str, object]) -> Iterator[tuple[str, object]]:
    """The values that there are."""
    return ((name, value) for name, value in values.items() if value is not None)


def lines(job: Job) -> Iterator[tuple[object, ...]]:
    """All of it in lines, whose first cell says what they hold."""
    yield from facts(job)
    for split, rows in job.splits:
        yield ("file", split, rows.name, rows.rows, rows.bad_rows, *rows.faults)
        for label, number in rows.classes.items():
            yield "class", split, label, number
        for problem in rows.problems:
            yield "left_out", split, problem.line, problem.reason
    for warning in job.warnings:
        yield "warning", warning
    for epoch in job.metrics:
        yield (
            "epoch_report",
            epoch.epoch,
            epoch.train_loss,
            epoch.validation_loss,
            epoch.validation_accuracy,
            "best" if epoch.best else "",
            epoch.seconds,
        )


def page(job: Job) -> RenderableType:
    """All of it in tables, for people."""
    parts: list[RenderableType] = [pairs_table("Job", facts(job))]
    if job.splits:
        parts.append(files_table(job))
        parts.append(classes_table(job))
        more = len(labels_of(job)) - MAX_LABELS
        if more > 0:
            parts.append(f"and {count(more, 'more label')}; --json has all")
    parts += [cell(f"Left out: {one}") for one in left_out(job)]
    parts += [cell(f"Warning: {one}") for one in job.warnings]
    if job.metrics:
        parts.append(epochs_table(job))
    return Group(*parts)


def files_table(job: Job) -> Table:
    """What was found in each file."""
    grid = Table(title="Rows", title_justify="left")
    for heading in ROWS:
        grid.add_column(heading)
    for split, rows in job.splits:
        numbers = (rows.rows, rows.bad_rows, len(rows.classes), *rows.faults)
        grid.add_row(cell(split), cell(rows.name), *(f"{number:,}" for number in numbers))
    return grid


def classes_table(job: Job) -> Table:
    """Rows of each label in each file; of many labels only the first."""
    grid = Table(title="Labels", title_justify="left")
    for heading in ("label", *(split for split, _ in job.splits)):
        grid.add_column(cell(heading))
    for label in labels_of(job)[:MAX_LABELS]:
        numbers = (rows.classes.get(label, 0) for _, rows in job.splits)
        grid.add_row(cell(label), *(f"{number:,}" for number in numbers))
    return grid


def labels_of(job: Job) -> list[str]:
    """The labels of all files, those of the training rows first."""
    return list(dict.fromkeys(label for _, rows in job.splits for label in rows.classes))


def epochs_table(job: Job) -> Table:
    """What each finished epoch gave."""
    grid = Table(title=count(len(job.metrics), "epoch"), title_justify="left")
    for heading in EPOCHS:
        grid.add_column(heading)
    for epoch in job.metrics:
        grid.add_row(
            str(epoch.epoch),
            f"{epoch.train_loss:.4f}",
            f"{epoch.validation_loss:.4f}",
            f"{epoch.validation_accuracy:.4f}",
            "best" if epoch.best else "",
            f"{epoch.seconds:.1f}",
        )
    return grid


def left_out(job: Job) -> Iterator[str]:
    """The rows that were left out, each with its line and why."""
    for split, rows in job.splits:
        for problem in rows.problems:
            yield f"{split}, line {problem.line}: {problem.reason}"
