"""One tiny task, and runs on it."""

from collections.abc import Callable
from typing import Any

import pytest

from capsules.backbones.base import LoadedBackbone
from capsules.data.base import Dataset
from capsules.training.checkpoint import FileKeeper
from capsules.training.config import TrainingConfig
from capsules.training.run import Run
from tests.support.datasets import separable

OPTIONS: dict[str, Any] = {
    "task": "tiny",
    "epochs": 4,
    "batch_size": 8,
    "learning_rate": 0.02,
    "max_length": 32,
}

MakeRun = Callable[..., Run]


@pytest.fixture(scope="session")
def train() -> Dataset:
    return separable(36, seed=1)


@pytest.fixture(scope="session")
def validation() -> Dataset:
    return separable(14, seed=2)


@pytest.fixture(scope="session")
def make_run(tiny: LoadedBackbone, train: Dataset, validation: Dataset) -> MakeRun:
    """Prepares a run of the tiny task; options of its configuration may be replaced.

    What `learner` names makes one of backbone, options and labels.
    """

    def make(
        *,
        rows: tuple[Dataset, Dataset] = (train, validation),
        kind: type[Run] = Run,
        loaded: LoadedBackbone = tiny,
        checkpoint_path: Any = None,
        keeper: Any = None,
        heed: Any = lambda: None,
        watcher: Any = None,
        learner: Any = None,
        **options: Any,
    ) -> Run:
        config = TrainingConfig(**{**OPTIONS, **options})
        return kind(
            loaded,
            config,
            *rows,
            keeper=keeper if checkpoint_path is None else FileKeeper(checkpoint_path),
            heed=heed,
            watcher=watcher,
            learner=None if learner is None else learner(loaded, config, rows[0].labels),
        )

    return make
