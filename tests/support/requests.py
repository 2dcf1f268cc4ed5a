"""Requests and rows of the engine, and ways to wait for it."""

import asyncio
import time
from collections.abc import Callable, Sequence

from capsules.core import Encoding
from capsules.template import Template
from service.engine.records import RowRequest, Served
from service.engine.request import Request, Row

PATIENCE_S = 10.0


def served_as(task: str = "task", *, max_tokens: int = 64, template: str = "{text}") -> Served:
    """A capsule version that no bank holds."""
    return Served(
        task=task,
        version=1,
        digest="0" * 64,
        labels=("a", "b"),
        template=Template(template),
        max_tokens=max_tokens,
    )


def rows_for(capsule: Served, *texts: str, truncate: bool = True) -> list[RowRequest]:
    """One row a text."""
    return [RowRequest(capsule, {"text": text}, truncate=truncate) for text in texts]


def queued_rows(tokens: Sequence[int], *, timeout: float = 60.0, caller: str = "") -> list[Row]:
    """Rows of one request, as the queue takes them; needs a running event loop."""
    capsule = served_as()
    request = Request(rows_for(capsule, *["w0"] * len(tokens)), timeout, caller)
    encodings = [Encoding(input_ids=(1,) * count, truncated=False) for count in tokens]
    now = time.monotonic()
    return [Row(request, i, capsule, encoding, now) for i, encoding in enumerate(encodings)]


async def until(condition: Callable[[], object]) -> None:
    """Wait until something that another thread does has happened."""
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        await asyncio.sleep(0.002)
