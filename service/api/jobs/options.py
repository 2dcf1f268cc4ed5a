"""Reads the options of a job, alone or with rows beside them."""

import asyncio
from typing import Any

from service.api.jobs.schemas import JobRequest, TrainingSpec
from service.body import SMALL_BYTES, JsonBody
from service.errors import BadRequest
from service.jobs.spec import JobSpec
from service.problems import Fault, InvalidRequest

SPEC = "spec"
"""The part of a form that has the options."""

MAX_SPEC_VALUES = 65_536
"""More JSON values than the most labels with a word each."""

MAX_VALUES = 250_000
"""JSON values of a request with rows in it: some 80,000 rows."""


class WholeText(JsonBody[Any]):
    """A body whose every string is well-formed Unicode."""

    def decode_surrogates(self, body: bytes, reason: str) -> Any:
        """Refuse a body with half a surrogate pair.

        Raises:
            InvalidRequest: always.
        """
        fault = "The JSON holds half a surrogate pair; send well-formed Unicode"
        raise InvalidRequest([Fault(None, fault, "invalid_text")])


SPEC_BODY: JsonBody[TrainingSpec] = WholeText(TrainingSpec)
REQUEST_BODY: JsonBody[JobRequest] = WholeText(JobRequest)


async def read_spec(data: bytes) -> JobSpec:
    """The options in a form.

    Raises:
        BadRequest: they are not JSON.
        InvalidRequest: they are not valid.
    """
    try:
        if len(data) <= SMALL_BYTES:
            return plain(SPEC_BODY.decode(data, MAX_SPEC_VALUES))
        return plain(await asyncio.to_thread(SPEC_BODY.decode, data, MAX_SPEC_VALUES))
    except BadRequest as error:
        reason = error.detail.removeprefix("The body")
        raise BadRequest(f"{SPEC}{reason}", code=error.code, field=SPEC) from error


def plain(spec: TrainingSpec) -> JobSpec:
    """The options alone."""
    return JobSpec.model_validate(spec.model_dump(include=set(JobSpec.model_fields)))
