"""A batch that has all it needs to run."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from capsules.executors.base import Executor, Pass
from capsules.model import pad
from service.engine.bank import Bank
from service.engine.heads import Heads
from service.engine.request import Row


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows whose capsules are gathered and whose pass is ready.

    Attributes:
        rows: of the batch.
        forward: the pass.
        heads: what is applied to what it gives.
        held: releases the bank's lease and unpins the capsules, each once; a context manager.
        ahead: whether it was prepared while the model ran another.
        seconds: what that took.
    """

    rows: Sequence[Row]
    forward: Pass
    heads: Heads
    held: ExitStack
    ahead: bool
    seconds: float

    def wanted(self, now: float) -> bool:
        """Whether anybody waits for any of its rows."""
        return any(not row.cancelled and row.deadline > now for row in self.rows)


def prepare(
    rows: Sequence[Row],
    executor: Executor,
    bank: Bank,
    pad_id: int,
    *,
    ahead: bool,
    alone: bool = True,
) -> Prepared:
    """Do all that a batch needs before the model; in any thread.

    The rows' capsules are unpinned with it, or at once where it fails.

    Args:
        rows: of the batch, their capsules pinned.
        executor: that will run it.
        bank: where the capsules are.
        pad_id: token id to fill short rows with.
        ahead: whether the model runs another batch meanwhile.
        alone: whether no other batch will run meanwhile.
    """
    started = time.monotonic()
    with ExitStack() as stack:
        capsules = [row.capsule for row in rows]
        stack.callback(bank.unpin, capsules)
        tokens = pad([row.encoding for row in rows], pad_id)
        gathered = stack.enter_context(bank.gather(capsules))
        reading = gathered.heads.reading
        forward = executor.prepare(tokens, gathered.prompts, reading, alone=alone)
        return Prepared(
            rows=rows,
            forward=forward,
            heads=gathered.heads,
            held=stack.pop_all(),
            ahead=ahead,
            seconds=time.monotonic() - started,
        )
    raise AssertionError("no exception is suppressed")
