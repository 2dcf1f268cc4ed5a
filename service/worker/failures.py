"""What an exception means to the owner of a job."""

import structlog
from sqlalchemy.exc import SQLAlchemyError

from capsules.errors import CapsuleError, TrainingFault
from service.errors import ServiceError
from service.jobs.records import JobError
from service.store.errors import StoreUnavailable

STORE_UNAVAILABLE = "store_unavailable"
INTERNAL_ERROR = "internal_error"

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


def failure(error: Exception, job: str) -> JobError:
    """Say why a job failed; what nobody foresaw is told to the log alone.

    Args:
        error: what ended the job.
        job: its id, for the log.
    """
    if isinstance(error, CapsuleError):
        return JobError(error.code, error.message, error.field)
    if isinstance(error, ServiceError):
        return JobError(error.code, error.detail, error.field)
    if isinstance(error, StoreUnavailable):
        return unavailable(str(error))
    # Of the workflows' own database; what it could not do may hold rows of the job.
    if isinstance(error, SQLAlchemyError):
        logger.error("workflow_not_recorded", job=job, exc_info=error)
        return unavailable("the workers' database did not take a step")
    if isinstance(error, MemoryError):
        return JobError(
            TrainingFault.OUT_OF_MEMORY.value,
            "The worker has not enough memory for any job; have the server's operator raise "
            "CAPSULE_TRAIN_MEMORY, then resume the job.",
        )
    logger.error("job_broke", job=job, exc_info=error)
    return JobError(
        INTERNAL_ERROR,
        "The job met a fault of the server, which its log explains. Resume the job to try again "
        "from its last finished epoch.",
    )


def unavailable(reason: str) -> JobError:
    """The failure of a job whose state could not be kept."""
    return JobError(
        STORE_UNAVAILABLE,
        f"What the job had done could not be kept for a minute: {reason}. Resume the job once the "
        "database can be written again; it goes on after its last finished epoch.",
    )
