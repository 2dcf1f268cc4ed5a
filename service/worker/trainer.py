"""Trains jobs on one backbone. With this, torch comes into the process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock

import torch

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.errors import TrainingError, TrainingFault
from capsules.executors.torch import TorchExecutor
from capsules.memory import is_out_of_memory
from service.jobs.ledger import Ledger
from service.jobs.records import Claim, Job
from service.settings import Settings
from service.store.base import Store
from service.worker.resources import default_threads
from service.worker.training import Training
from service.worker.workflows import Step


class Trainer:
    """A `Trains`, for several jobs at once, each in a thread of its own.

    Args:
        ledger: keeps the jobs.
        store: has the versions that are served.
        load: loads the backbone in float32; called once.
    """

    def __init__(self, ledger: Ledger, store: Store, load: Callable[[], LoadedBackbone]) -> None:
        self.ledger = ledger
        self.store = store
        self.load = load
        self.lock = Lock()
        self.loaded: LoadedBackbone | None = None

    def backbone(self) -> LoadedBackbone:
        """The backbone, which all jobs share.

        Raises:
            CapsuleError: it cannot be loaded.
        """
        with self.lock:
            if self.loaded is None:
                self.loaded = self.load()
            return self.loaded

    def train(self, claim: Claim, job: Job, step: Step) -> None:
        """See `Trains.train`."""
        with memory_told():
            loaded = self.backbone()
            executor = TorchExecutor(loaded.backbone)
            Training(self.ledger, self.store, loaded, executor, claim, job).train(step)


@contextmanager
def memory_told() -> Iterator[None]:
    """Say what a lack of memory means; a batch that is too large says so itself.

    Raises:
        TrainingError: there was not enough memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            raise
        raise TrainingError(
            "There is not enough memory for the job's rows; send fewer or shorter ones, lower "
            "max_length, or have the server's operator raise CAPSULE_TRAIN_MEMORY.",
            code=TrainingFault.OUT_OF_MEMORY,
            field="max_length",
        ) from error


def trainer_for(settings: Settings, ledger: Ledger, store: Store) -> Trainer:
    """The trainer of a worker process; sets the threads of its tensor operations.

    Args:
        settings: of the deployment.
        ledger: the jobs.
        store: the capsules.
    """
    torch.set_num_threads(settings.train_threads or default_threads())
    # Whatever the server computes with, capsules are trained in float32.
    backbone = partial(load, settings.backbone, device=settings.device, dtype="float32")
    return Trainer(ledger, store, backbone)
