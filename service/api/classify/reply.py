"""Puts the reply together from what the engine answered."""

import math
import time
from collections.abc import Mapping, Sequence
from random import getrandbits
from typing import Any, NamedTuple

import numpy as np
import orjson

from service.api.classify.rows import Plan, Row
from service.engine.records import RowAnswer, Served, Timings
from service.errors import InternalError, ServiceError, Unprocessable
from service.problems import MAX_DETAIL, MAX_FIELD, shortened

FEW_LABELS = 128
"""Fewer than that are sorted faster than handed to numpy."""


class Classified(NamedTuple):
    """A reply, and what is to be told beside it.

    Attributes:
        content: the reply in JSON, as documented by `ClassifyReply`.
        timings: where the time went.
        truncated: rows whose text was cut.
        row_errors: codes of the rows that failed.
    """

    content: bytes
    timings: Timings
    truncated: int
    row_errors: Sequence[str]


def compose(
    plan: Plan,
    found: Mapping[str, Served | ServiceError],
    results: Sequence[RowAnswer | ServiceError],
    timings: Timings,
    backbone_id: str,
    top_k: int | None,
    *,
    large: bool = False,
) -> Classified:
    """The reply.

    Args:
        plan: the rows, as they were asked for.
        found: the capsule of each reference.
        results: what became of each row.
        timings: where the time went.
        backbone_id: stands for the model where each row has a task of its own.
        top_k: how many labels of each row to send; None for all.
        large: write the rows one by one, so that other threads get their turn in between.

    Raises:
        ServiceError: there is one row only, and it failed.
    """
    data: list[dict[str, Any]] = []
    errors: list[str] = []
    written: dict[Served, orjson.Fragment] = {}
    tokens = truncated = 0
    for index, (row, result) in enumerate(zip(plan.rows, results, strict=True)):
        capsule = found[row.reference]
        checked = finite(result)
        if isinstance(checked, ServiceError):
            failure = located(checked, row, capsule)
            if len(plan.rows) == 1:
                raise failure
            errors.append(failure.code)
            data.append(failed(index, row, capsule, failure))
        else:
            assert isinstance(capsule, Served), "only capsules are asked"
            tokens += checked.input_tokens
            truncated += checked.truncated
            data.append(answered(index, capsule, checked, top_k, written))
    reply = {
        "id": f"classify-{getrandbits(128):032x}",
        "object": "list",
        "created": int(time.time()),
        "model": backbone_id if plan.model is None else plan.model,
        "data": [orjson.Fragment(orjson.dumps(row)) for row in data] if large else data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
    }
    return Classified(
        content=orjson.dumps(reply),
        timings=timings,
        truncated=truncated,
        row_errors=errors,
    )


def finite(result: RowAnswer | ServiceError) -> RowAnswer | ServiceError:
    """The result, or an error where a probability is no number, which JSON would hide as null."""
    if isinstance(result, RowAnswer) and not math.isfinite(sum(result.probs)):
        return InternalError(
            "The model gave scores that are no numbers; tell the server's operator.",
            code="non_finite_scores",
        )
    return result


def located(error: ServiceError, row: Row, capsule: Served | ServiceError) -> ServiceError:
    """A row's error, with the field as the client knows it."""
    if isinstance(capsule, ServiceError):
        return at(error, row.source)
    if not isinstance(error, Unprocessable):
        return error
    inside = not isinstance(row.text, str) and error.field in capsule.template.fields
    return at(error, f"{row.path}.{error.field}" if inside else row.path)


def at(error: ServiceError, field: str) -> ServiceError:
    """The same error, of another field."""
    return type(error)(error.detail, code=error.code, field=field, retry_after=error.retry_after)


def failed(
    index: int, row: Row, capsule: Served | ServiceError, error: ServiceError
) -> dict[str, Any]:
    """The row of the reply for one that failed."""
    known = capsule if isinstance(capsule, Served) else None
    return {
        "index": index,
        "task": known.task if known else shortened(row.reference, MAX_FIELD),
        "version": known and known.version,
        "digest": known and known.digest,
        "label": None,
        "score": None,
        "probs": None,
        "labels": None,
        "num_classes": known and len(known.labels),
        "truncated": None,
        "input_tokens": None,
        "error": {
            "code": error.code,
            "message": shortened(error.detail, MAX_DETAIL),
            "field": error.field and shortened(error.field, MAX_FIELD),
        },
    }


def answered(
    index: int,
    capsule: Served,
    answer: RowAnswer,
    top_k: int | None,
    written: dict[Served, orjson.Fragment],
) -> dict[str, Any]:
    """The row of the reply for one that succeeded.

    Args:
        index: its position.
        capsule: its capsule.
        answer: what the model said.
        top_k: how many labels to send; None for all.
        written: all labels of capsules in JSON, so that many rows have them written down once.
    """
    probs: Sequence[float] = answer.probs
    labels: Sequence[str] | orjson.Fragment
    score = max(probs)
    label = capsule.labels[probs.index(score)]
    if top_k is not None:
        best = most_probable(probs, top_k)
        probs = [answer.probs[position] for position in best]
        labels = [capsule.labels[position] for position in best]
    elif capsule in written:
        labels = written[capsule]
    else:
        labels = written[capsule] = orjson.Fragment(orjson.dumps(capsule.labels))
    return {
        "index": index,
        "task": capsule.task,
        "version": capsule.version,
        "digest": capsule.digest,
        "label": label,
        "score": score,
        "probs": probs,
        "labels": labels,
        "num_classes": len(capsule.labels),
        "truncated": answer.truncated,
        "input_tokens": answer.input_tokens,
        "error": None,
    }


def most_probable(probs: Sequence[float], count: int) -> list[int]:
    """Positions of the highest probabilities, in order; of equal ones the first comes first."""
    if len(probs) <= FEW_LABELS:
        return sorted(range(len(probs)), key=probs.__getitem__, reverse=True)[:count]
    # Lets other threads work meanwhile.
    order: list[int] = np.argsort(np.negative(probs), kind="stable")[:count].tolist()
    return order
