"""An engine without a model: what the registry and the HTTP edge need of one, at once and exactly.

A capsule's probabilities are the softmax of its `head.bias`, whatever the text.
"""

import asyncio
import threading
from collections.abc import Sequence

from capsules.artefact.file import Capsule
from capsules.errors import InputError
from capsules.template import Template
from service.engine.records import Outcome, RowAnswer, RowRequest, Served, Timings
from service.errors import NotFound, ServiceError, from_capsule_error


def probabilities(capsule: Capsule) -> tuple[float, ...]:
    """What a fake engine says for every text."""
    answer: list[float] = capsule.tensors["head.bias"].softmax(dim=0).tolist()
    return tuple(answer)


class FakeBank:
    """Capsules by `Served`; `fail_next` lets additions fail."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.resident: dict[Served, Capsule] = {}
        self.failures: list[Exception | None] = []
        self.expected: list[tuple[int, int]] = []

    def fail_next(self, *failures: Exception | None) -> None:
        """Let each of the next additions fail with its error, or succeed where that is None."""
        self.failures.extend(failures)

    def expect(self, capsules: int, nbytes: int) -> None:
        self.expected.append((capsules, nbytes))

    def add(self, capsule: Capsule, *, version: int, digest: str) -> Served:
        with self.lock:
            failure = self.failures.pop(0) if self.failures else None
            if failure is not None:
                raise failure
            manifest = capsule.manifest
            served = Served(
                task=manifest.task,
                version=version,
                digest=digest,
                labels=tuple(manifest.labels),
                template=Template(manifest.template),
                max_tokens=manifest.max_length - manifest.length,
            )
            self.resident[served] = capsule
            return served

    def remove(self, served: Served) -> None:
        with self.lock:
            self.resident.pop(served, None)


class FakeEngine:
    """Answers at once; `gate` holds requests back, `failure` lets them fail."""

    def __init__(self) -> None:
        self.bank = FakeBank()
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self.callers: list[str] = []
        self.failure: ServiceError | None = None
        self.row_failure: ServiceError | None = None

    async def classify(
        self,
        rows: Sequence[RowRequest],
        *,
        timeout: float,  # noqa: ASYNC109 - the engine's interface
        caller: str = "",
    ) -> Outcome:
        # Pinned before the first await, as the real engine does.
        capsules = [self.bank.resident.get(row.capsule) for row in rows]
        self.callers.append(caller)
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        if self.failure is not None:
            raise self.failure
        return Outcome(
            rows=tuple(
                self.answer(row, capsule) for row, capsule in zip(rows, capsules, strict=True)
            ),
            timings=Timings(tokenise=0.0, queue=0.0, forward=0.0),
        )

    def answer(self, row: RowRequest, capsule: Capsule | None) -> RowAnswer | ServiceError:
        if capsule is None:
            return NotFound("Removed.", code="version_not_found", field="task")
        if self.row_failure is not None:
            return self.row_failure
        try:
            text = row.capsule.template.render(row.inputs)
        except InputError as error:
            return from_capsule_error(error)
        return RowAnswer(
            probs=probabilities(capsule), input_tokens=len(text.split()), truncated=False
        )
