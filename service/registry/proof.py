"""Proof at upload: a capsule's golden examples must come out here as they did for its trainer."""

from collections.abc import Sequence

from capsules.artefact.manifest import Golden
from capsules.errors import ArtefactFault
from capsules.executors.base import TOLERANCE
from service.engine.records import PROOF_CALLER, RowAnswer, RowRequest, Served
from service.errors import DeadlineExceeded, InternalError, ServiceError, Unprocessable
from service.registry.ports import CapsuleEngine


async def prove(
    golden: Sequence[Golden],
    served: Served,
    engine: CapsuleEngine,
    timeout_s: float,
    tolerance: float = TOLERANCE,
) -> None:
    """Replay golden examples through the engine; a capsule without any has nothing to prove.

    Args:
        golden: what the trainer recorded.
        served: the capsule, in the engine's bank.
        engine: what will serve it.
        timeout_s: longest time for all of them together.
        tolerance: see :func:`check`.

    Raises:
        Unprocessable: `golden_mismatch`, naming the example and by how much it is off.
        ServiceError: the engine could not answer; the upload may be sent again.
    """
    if not golden:
        return
    rows = [RowRequest(capsule=served, inputs=example.inputs) for example in golden]
    try:
        outcome = await engine.classify(rows, timeout=timeout_s, caller=PROOF_CALLER)
    except DeadlineExceeded as error:
        raise DeadlineExceeded(
            f"The golden examples were not answered within {timeout_s:g} s; upload the capsule "
            "again when the server is less busy.",
            code="deadline_exceeded",
        ) from error
    for index, (example, answer) in enumerate(zip(golden, outcome.rows, strict=True)):
        if isinstance(answer, ServiceError):
            raise unanswered(index, answer)
        check(index, example, answer, served.labels, tolerance)


def check(
    index: int,
    example: Golden,
    answer: RowAnswer,
    labels: Sequence[str],
    tolerance: float = TOLERANCE,
) -> None:
    """Compare one answer with its record: same label, ``max |p - q| <= tolerance``.

    Where it is computed less exactly than it was recorded, with a tolerance above the usual one,
    the label may be another one too if that was recorded as less than the tolerance behind.

    Args:
        index: the example's position, for the message.
        example: what the trainer recorded.
        answer: what the engine said.
        labels: in head order.
        tolerance: how far a probability may be off, as the executor has it.

    Raises:
        Unprocessable: `golden_mismatch`.
    """
    best = max(range(len(labels)), key=answer.probs.__getitem__)
    if labels[best] != example.label:
        lead = example.probs[labels.index(example.label)] - example.probs[best]
        if tolerance <= TOLERANCE or lead >= tolerance:
            raise mismatch(
                index,
                f"gives the label {labels[best]!r} with probability {answer.probs[best]:.4f} here, "
                f"but {example.label!r} was recorded, {lead:.4f} ahead of it, with "
                f"{allowed(tolerance)}",
            )
    difference, worst = max(
        (abs(got - recorded), position)
        for position, (got, recorded) in enumerate(zip(answer.probs, example.probs, strict=True))
    )
    if difference > tolerance:
        raise mismatch(
            index,
            f"gives {labels[worst]!r} the probability {answer.probs[worst]:.4f} here, but "
            f"{example.probs[worst]:.4f} was recorded, which is {difference:.4f} off with at most "
            f"{tolerance:g} allowed",
        )


def allowed(tolerance: float) -> str:
    """By how much another label may have been behind in the record."""
    if tolerance <= TOLERANCE:
        return "no other label allowed"
    return f"only labels less than {tolerance:g} behind allowed"


def unanswered(index: int, error: ServiceError) -> ServiceError:
    """What it means that a golden example was not answered: the capsule's fault, or the server's."""
    if isinstance(error, Unprocessable):
        return mismatch(index, f"cannot be classified ({error.detail.rstrip('.')})")
    if isinstance(error, InternalError) and error.code == "non_finite_scores":
        return mismatch(index, "gives scores that are not finite")
    return error


def mismatch(index: int, finding: str) -> Unprocessable:
    """The refusal of a capsule, with what was found as the predicate of its golden example."""
    return Unprocessable(
        f"Golden example {index} {finding}. The capsule does not do on this backbone what it did "
        "where it was trained; train it again here.",
        code=ArtefactFault.GOLDEN_MISMATCH.value,
        field=f"golden.{index}",
    )
