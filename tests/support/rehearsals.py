"""A rehearsal without a backbone."""

from collections.abc import Sequence

from capsules.errors import CapsuleError
from capsules.training.config import TrainingConfig


class FakeRehearsal:
    """Takes every run, unless it is told to fail.

    Attributes:
        rehearsed: the labels of every run.
        failure: refuses the next ones, where it is set.
    """

    def __init__(self) -> None:
        self.rehearsed: list[Sequence[str]] = []
        self.failure: CapsuleError | None = None

    @property
    def learning_rate(self) -> float:
        return 0.5

    def max_length(self, name: str, length: int) -> int:
        return 64

    def check(self, config: TrainingConfig, labels: Sequence[str]) -> None:
        self.rehearsed.append(labels)
        if self.failure is not None:
            raise self.failure
