"""How large a reply would be, told before anything is classified."""

from collections import Counter
from collections.abc import Mapping, Sequence

import orjson

from capsules.core import MAX_LABEL_CHARACTERS
from service.api.classify.rows import Plan
from service.engine.records import Served
from service.errors import ServiceError, Unprocessable

# A score in memory, whether it is sent or not; written out, it is shorter.
SCORE_BYTES = 32
# Of a label in JSON: a character, at worst an escape, and its quotes and comma.
CHARACTER_BYTES = 6
FRAME_BYTES = 3
MOST_BYTES = SCORE_BYTES + MAX_LABEL_CHARACTERS * CHARACTER_BYTES + FRAME_BYTES


def check_size(
    plan: Plan, found: Mapping[str, Served | ServiceError], top_k: int | None, limit: int
) -> int:
    """Hold the scores and labels of a reply to the most bytes.

    Args:
        plan: the rows.
        found: the capsule of each reference.
        top_k: how many labels of each row are sent; None for all.
        limit: most bytes of all rows together.

    Returns:
        How many scores there will be, sent or not.

    Raises:
        Unprocessable: `reply_too_large`.
    """
    scores = 0
    for row in plan.rows:
        capsule = found[row.reference]
        if isinstance(capsule, Served):
            scores += len(capsule.labels)
    size = scores * SCORE_BYTES
    if size > limit:
        field = plan.rows[0].path.partition(".")[0]
        raise too_large(size, limit, "send fewer texts at a time", field)
    # Most requests are so small that the length of their labels cannot matter.
    if scores * MOST_BYTES > limit:
        for reference, rows in Counter(row.reference for row in plan.rows).items():
            capsule = found[reference]
            if isinstance(capsule, Served):
                size += rows * label_bytes(capsule.labels, top_k)
        if size > limit:
            fewer = "ask for fewer labels with top_k, or send fewer texts at a time"
            raise too_large(size, limit, fewer, "top_k")
    return scores


def label_bytes(labels: Sequence[str], top_k: int | None) -> int:
    """The most bytes that the labels of one row take."""
    every = len(orjson.dumps(labels))
    if top_k is None:
        return every
    return min(every, top_k * (max(map(len, labels)) * CHARACTER_BYTES + FRAME_BYTES))


def too_large(size: int, limit: int, remedy: str, field: str) -> Unprocessable:
    """The error for a reply beyond the limit."""
    return Unprocessable(
        f"The scores and labels of the reply would take up to {size} bytes, and the limit is "
        f"{limit}; {remedy}.",
        code="reply_too_large",
        field=field,
    )
