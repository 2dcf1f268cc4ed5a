"""What it means to a client that a submission is refused."""

from pydantic import ValidationError

from capsules.errors import CapsuleError, DataFault
from service.body import faults_in
from service.errors import PayloadTooLarge, ServiceError, Unprocessable, from_capsule_error
from service.jobs.intake.records import Refused
from service.problems import Fault, InvalidRequest


class BadRows(InvalidRequest):
    """Rows cannot be used; each of the first is a fault of its own."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(
            [Fault(refused.field, problem, refused.code) for problem in refused.problems]
        )
        self.code = refused.code
        self.detail = refused.message


def refusal(refused: Refused) -> ServiceError:
    """The error for rows that cannot be trained on."""
    if refused.problems:
        return BadRows(refused)
    kind = PayloadTooLarge if refused.code == DataFault.FILE_TOO_LARGE else Unprocessable
    return kind(refused.message, code=refused.code, field=refused.field)


def rehearsal_failed(error: CapsuleError | ValidationError) -> ServiceError:
    """The error for options that would come to nothing on this backbone."""
    if isinstance(error, ValidationError):
        return InvalidRequest(faults_in(error))
    return from_capsule_error(error)
