import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from capsules.errors import OptionError, TrainingError, TrainingFault
from service.errors import Unprocessable
from service.jobs.records import JobError
from service.store.errors import StoreError, StoreUnavailable
from service.worker.failures import failure


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            TrainingError("Too large.", code=TrainingFault.OUT_OF_MEMORY, field="batch_size"),
            JobError("out_of_memory", "Too large.", "batch_size"),
        ),
        (OptionError("Too long.", field="max_length"), JobError("invalid_option", "Too long.", "max_length")),
        (Unprocessable("Off.", code="golden_mismatch", field="golden.0"), JobError("golden_mismatch", "Off.", "golden.0")),
    ],
)  # fmt: skip
def test_what_was_foreseen_is_told_as_it_is(error: Exception, expected: JobError) -> None:
    with capture_logs() as logs:
        assert failure(error, "job") == expected
    assert logs == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreUnavailable("the disk is full"), "the disk is full"),
        (OperationalError("INSERT secret", {}, Exception("full")), "did not take a step"),
    ],
)
def test_a_database_that_was_not_there_can_be_resumed_from(error: Exception, reason: str) -> None:
    told = failure(error, "job")
    assert told.code == "store_unavailable"
    assert reason in told.message
    assert "secret" not in told.message
    assert "Resume the job" in told.message


def test_too_little_memory_for_anything_names_the_setting() -> None:
    told = failure(MemoryError(), "job")
    assert told.code == "out_of_memory"
    assert "CAPSULE_TRAIN_MEMORY" in told.message


@pytest.mark.parametrize("error", [ValueError("secret"), StoreError("secret defect")])
def test_what_was_not_foreseen_is_for_the_log_alone(error: Exception) -> None:
    with capture_logs() as logs:
        told = failure(error, "job-1")
    assert told.code == "internal_error"
    assert "secret" not in told.message
    assert [(log["event"], log["job"], log["exc_info"]) for log in logs] == [
        ("job_broke", "job-1", error)
    ]
