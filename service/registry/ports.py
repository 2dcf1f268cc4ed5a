"""What the registry asks of its neighbours, and what it tells those who watch it."""

from collections.abc import Sequence
from typing import Protocol

from capsules.artefact.file import Capsule
from service.engine.records import Outcome, RowRequest, Served


class CapsuleBank(Protocol):
    """Holds capsules where the model can reach them; safe to call from any thread."""

    def expect(self, capsules: int, nbytes: int) -> None:
        """Make room for so many capsules at once, whose tensors have at most so many bytes."""
        ...

    def add(self, capsule: Capsule, *, version: int, digest: str) -> Served:
        """Copy a capsule in; until its `Served` is handed out, nobody can classify with it."""
        ...

    def remove(self, served: Served) -> None:
        """Give a capsule up; rows that have pinned it are answered with it nevertheless."""
        ...


class CapsuleEngine(Protocol):
    """Classifies rows with capsules of its bank.

    It pins every row's capsule before it awaits anything for the first time, which is what lets
    a capsule be removed between two steps of the event loop.
    """

    @property
    def bank(self) -> CapsuleBank:
        """Where its capsules are."""
        ...

    async def classify(
        self,
        rows: Sequence[RowRequest],
        *,
        timeout: float,  # noqa: ASYNC109 - the engine's own deadline, which also drops queued rows
        caller: str = "",
    ) -> Outcome:
        """Answer rows, within `timeout` seconds, when it is the turn of the caller of that key."""
        ...


class ArtefactFile(Protocol):
    """A capsule file on disk or in a package; a `pathlib.Path` is one."""

    @property
    def name(self) -> str:
        """Its name, for messages."""
        ...

    def read_bytes(self) -> bytes:
        """Its content."""
        ...


class RegistryObserver(Protocol):
    """Is told of what is worth measuring, on the event loop's thread."""

    def capsules_served(self, count: int) -> None:
        """How many versions can be classified with, after each change."""
        ...

    def load_finished(self, seconds: float) -> None:
        """How long reading the whole store took."""
        ...

    def task_followed(self) -> None:
        """A task was brought into step with what another process wrote."""
        ...


class SilentObserver:
    """Measures nothing."""

    def capsules_served(self, count: int) -> None:
        """See `RegistryObserver`."""

    def load_finished(self, seconds: float) -> None:
        """See `RegistryObserver`."""

    def task_followed(self) -> None:
        """See `RegistryObserver`."""
