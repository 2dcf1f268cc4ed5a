"""The capsules that ship with the server: uploaded on its first start, and never again."""

from collections.abc import Iterable
from typing import Protocol

import structlog

from capsules.errors import ArtefactFault
from service.errors import Unprocessable
from service.registry.intake import Candidate
from service.registry.lanes import Lanes
from service.registry.ports import ArtefactFile
from service.registry.records import ZooReport
from service.registry.storage import stored
from service.store import Store
from service.store.base import Source, VersionRecord

ZOO_MARK = "zoo_loaded"
"""What the store notes once the zoo has been loaded, so that a deleted capsule stays deleted."""

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Uploader(Protocol):
    """The registry, as far as the zoo needs it."""

    def knows(self, task: str) -> bool:
        """Whether the task has a live version."""
        ...

    async def examine(self, data: bytes) -> Candidate:
        """The checks that need no model."""
        ...

    async def admit(self, candidate: Candidate, source: Source) -> tuple[VersionRecord, bool]:
        """The rest of an upload."""
        ...


async def load_zoo(
    files: Iterable[ArtefactFile], store: Store, lanes: Lanes, registry: Uploader
) -> ZooReport:
    """Upload the zoo unless that was done before; call it before clients may upload.

    A task that exists is left alone, since its owner may have put another capsule there. A file
    that is refused is reported, and the others go on. Files of another backbone do not count:
    where there are no others, the zoo stays due for a start on theirs.

    Args:
        files: the artefacts.
        store: remembers that it was done.
        lanes: have the threads.
        registry: takes the uploads.

    Raises:
        ServiceError: the engine or the store failed; the next start goes on from here.
    """
    if await stored(lanes.reading, None, store.marked, ZOO_MARK) is not None:
        return ZooReport()
    added: list[str] = []
    present: list[str] = []
    refused: list[tuple[str, str]] = []
    for file in files:
        try:
            data = await lanes.reading.run(None, file.read_bytes)
            candidate = await registry.examine(data)
            if registry.knows(candidate.task):
                present.append(candidate.task)
                continue
            await registry.admit(candidate, "zoo")
        except Unprocessable as error:
            logger.error(
                "zoo_capsule_refused", file=file.name, code=error.code, reason=error.detail
            )
            refused.append((file.name, error.code))
        else:
            added.append(candidate.task)
    complete = bool(added or present) or any(
        code != ArtefactFault.BACKBONE_MISMATCH for _, code in refused
    )
    if complete:
        await stored(lanes.writing, None, store.mark, ZOO_MARK, "1")
    return ZooReport(tuple(added), tuple(present), tuple(refused), complete)
