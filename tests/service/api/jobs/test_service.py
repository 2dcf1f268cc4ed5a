from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from service.api.jobs.service import Shapes, event_of, progress_of
from service.jobs.records import Event, Job, JobError, JobResult, Progress
from service.jobs.spec import JobSpec
from service.registry.registry import Registry
from service.state import Warm
from tests.service.jobs.samples import FILES, report
from tests.support.edge import FACTS, EdgeEngine
from tests.support.rehearsals import FakeRehearsal

AT = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
SECONDS = 1767323045


@pytest.fixture
def shapes() -> Shapes:
    class Desk:
        rehearsal = FakeRehearsal()

    return Shapes(Warm(EdgeEngine(), cast(Registry, None), FACTS, Desk()))  # type: ignore[arg-type]


@pytest.fixture
def job() -> Job:
    return Job(
        id="ftjob-" + "0" * 24,
        spec=JobSpec(task="spam", seed=7, metadata={"by": "me"}),
        status="queued",
        created_at=AT,
        position=3,
        files={split: file.facts for split, file in FILES.items()},
        warnings=("Odd.",),
    )


def test_a_job_has_openai_s_names(shapes: Shapes, job: Job) -> None:
    told = shapes.job(job).model_dump()
    assert told["object"] == "fine_tuning.job"
    assert (told["created_at"], told["started_at"], told["finished_at"]) == (SECONDS, None, None)
    assert told["model"] == FACTS.id
    assert told["fine_tuned_model"] is None
    assert told["seed"] == 7
    assert told["training_file"] == f"file-{FILES['train'].facts.digest[:24]}"
    assert told["validation_file"] == f"file-{FILES['validation'].facts.digest[:24]}"
    assert told["test_file"] is None
    assert told["files"]["test"] is None
    assert told["files"]["train"]["problems"] == [{"line": 3, "reason": "the label is missing"}]
    assert told["files"]["validation"]["overlap"] == 3
    assert told["hyperparameters"]["n_epochs"] == 50
    assert told["queue_position"] == 3
    assert told["metadata"] == {"by": "me"}


def test_what_was_left_to_the_server_is_told(shapes: Shapes, job: Job) -> None:
    left = shapes.job(job).hyperparameters
    assert (left.learning_rate, left.max_length, left.layers) == (0.5, 64, "all")
    spec = JobSpec(task="spam", learning_rate=0.25, max_length=32, layers=(1, 3))
    asked = shapes.job(replace(job, spec=spec)).hyperparameters
    assert (asked.learning_rate, asked.max_length, asked.layers) == (0.25, 32, [1, 3])


def test_a_running_job_says_when_it_will_be_done(shapes: Shapes, job: Job) -> None:
    progress = Progress(epoch=2, epochs=4, step=5, steps=10, loss=0.5, seconds_left=100.0)
    running = replace(job, status="running", started_at=AT, progress=progress)
    running = replace(running, epochs=(report(1),))
    told = shapes.job(running)
    assert told.started_at == SECONDS
    assert told.progress is not None
    assert told.progress.fraction == 0.375
    assert told.estimated_finish is not None
    soon = datetime.now(UTC) + timedelta(seconds=100)
    assert abs(told.estimated_finish - soon.timestamp()) < 5
    assert [epoch.epoch for epoch in told.metrics] == [1]
    stopped = replace(running, status="cancelled", finished_at=AT)
    assert shapes.job(stopped).estimated_finish is None
    assert shapes.job(stopped).progress == told.progress
    unknown = replace(running, progress=replace(progress, seconds_left=None))
    assert shapes.job(unknown).estimated_finish is None


@pytest.mark.parametrize(
    ("epoch", "step", "steps", "fraction"),
    [(1, 0, 10, 0), (1, 10, 10, 0.25), (4, 10, 10, 1), (1, 0, 0, 0), (5, 10, 10, 1)],
)
def test_a_fraction_is_one(epoch: int, step: int, steps: int, fraction: float) -> None:
    progress = Progress(epoch=epoch, epochs=4, step=step, steps=steps, loss=None, seconds_left=None)
    assert progress_of(progress).fraction == fraction


def test_an_ended_job_says_what_came_of_it(shapes: Shapes, job: Job) -> None:
    result = JobResult("spam", 4, "f" * 64, True, "It is better.", {"accuracy": 0.9})
    won = shapes.job(replace(job, status="succeeded", finished_at=AT, result=result))
    assert won.fine_tuned_model == "spam@4"
    assert won.result is not None
    assert (won.result.activated, won.result.reason) == (True, "It is better.")
    assert won.finished_at == SECONDS
    error = JobError("out_of_memory", "Lower batch_size.", "batch_size")
    lost = shapes.job(replace(job, status="failed", error=error))
    assert lost.error is not None
    assert lost.error.model_dump() == {
        "code": "out_of_memory",
        "message": "Lower batch_size.",
        "param": "batch_size",
    }


def test_an_event_has_a_number_and_an_id_of_its_own() -> None:
    event = Event(3, "ftjob-abc", AT, "warning", "message", "Odd.", {"n": 1})
    assert event_of(event).model_dump() == {
        "object": "fine_tuning.job.event",
        "id": "ftevent-abc-3",
        "number": 3,
        "created_at": SECONDS,
        "level": "warning",
        "type": "message",
        "message": "Odd.",
        "data": {"n": 1},
    }
