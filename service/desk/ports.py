"""What the desk asks of its neighbours."""

from collections.abc import Sequence
from typing import Protocol

from capsules.training.config import TrainingConfig


class Shelf(Protocol):
    """Has the versions that this server can be asked for; see `Registry.refresh`."""

    async def refresh(self, task: str, version: int) -> None:
        """See to it that a version which a worker has registered is here now."""
        ...


class Rehearsal(Protocol):
    """Refuses a training run that its backbone could not serve; see `service.engine.rehearsal`."""

    @property
    def learning_rate(self) -> float:
        """The learning rate of a run that asks for none."""
        ...

    def max_length(self, name: str, length: int) -> int:
        """The `max_length` of a run that asks for none."""
        ...

    def check(self, config: TrainingConfig, labels: Sequence[str]) -> None:
        """Refuse options that would come to nothing, with a `CapsuleError` or `ValidationError`."""
        ...
