"""Holds a job's checkpoint between the run that writes it and the ledger that keeps it."""

from dataclasses import dataclass


@dataclass(slots=True)
class Held:
    """A `Keeper` in memory: an epoch's report and checkpoint go to the ledger together.

    Attributes:
        data: the last checkpoint; None before the first.
    """

    data: bytes | None

    @property
    def name(self) -> str:
        """See `Keeper.name`."""
        return "What was kept of the job's last finished epoch"

    @property
    def to_start_over(self) -> str:
        """See `Keeper.to_start_over`."""
        return "Submit the job again to start over."

    @property
    def to_change(self) -> str:
        """See `Keeper.to_change`; a job's options are never changed."""
        return ""

    def load(self) -> bytes | None:
        """See `Keeper.load`."""
        return self.data

    def save(self, data: bytes) -> None:
        """See `Keeper.save`."""
        self.data = data
