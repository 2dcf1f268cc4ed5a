"""A run that was interrupted ends as one that was not."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from capsules.backbones.base import LoadedBackbone
from capsules.data.base import Dataset
from capsules.errors import TrainingError, TrainingFault
from capsules.training import checkpoint
from capsules.training.checkpoint import FileKeeper
from capsules.training.events import EpochReport
from capsules.training.run import Run
from tests.capsules.training.conftest import MakeRun
from tests.support.backbones import tiny_bert
from tests.support.datasets import separable

EPOCHS = 3


class Interruption(Exception):
    """What a test raises inside a run."""


class Interrupting:
    """Ends a run after some steps, or at the end of an epoch."""

    def __init__(self, *, epoch: int, step: int | None = None) -> None:
        self.at = (epoch, step)

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        if (epoch, step) == self.at:
            raise Interruption

    def epoch(self, report: EpochReport) -> None:
        if (report.epoch, None) == self.at:
            raise Interruption


def outcome(run: Run) -> dict[str, Any]:
    """Everything that a run leads to, but for its duration."""
    return {
        "tensors": {name: value.tolist() for name, value in run.learner.snapshot().items()},
        "best": {name: value.tolist() for name, value in run.best.items()},
        "reports": [report.model_copy(update={"seconds": 0.0}) for report in run.reports],
        "rate": run.schedule.get_last_lr(),
        "moments": [
            {name: torch.as_tensor(value).tolist() for name, value in state.items()}
            for state in run.optimizer.state_dict()["state"].values()
        ],
    }


@pytest.fixture(
    params=["addition", "projection", None], ids=["capsule", "projection", "linear-head"]
)
def variant(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def undisturbed(make_run: MakeRun) -> Callable[[str | None], dict[str, Any]]:
    """Where a run of a variant ends that nothing interrupts."""

    @cache
    def ends(variant: str | None) -> dict[str, Any]:
        run = make_run(variant=variant, epochs=EPOCHS)
        run.run()
        return outcome(run)

    return ends


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.pt"


@pytest.mark.parametrize("epoch", range(1, EPOCHS + 1))
@pytest.mark.parametrize("step", [None, 1, 4], ids=["at the end", "at step 1", "at step 4"])
def test_an_interrupted_run_ends_as_an_undisturbed_one(
    make_run: MakeRun,
    undisturbed: Callable[[str | None], dict[str, Any]],
    path: Path,
    variant: Any,
    epoch: int,
    step: int | None,
) -> None:
    watcher = Interrupting(epoch=epoch, step=step)
    interrupted = make_run(variant=variant, epochs=EPOCHS, checkpoint_path=path, watcher=watcher)
    with pytest.raises(Interruption):
        interrupted.run()
    del interrupted

    resumed = make_run(variant=variant, epochs=EPOCHS, checkpoint_path=path)
    assert len(resumed.reports) == (epoch if step is None else epoch - 1)
    resumed.run()
    assert outcome(resumed) == undisturbed(variant)


def test_interrupted_again_and_again(make_run: MakeRun, path: Path) -> None:
    undisturbed = make_run(epochs=EPOCHS)
    undisturbed.run()
    for epoch in range(1, EPOCHS + 1):
        for watcher in (Interrupting(epoch=epoch, step=2), Interrupting(epoch=epoch)):
            with pytest.raises(Interruption):
                make_run(epochs=EPOCHS, checkpoint_path=path, watcher=watcher).run()
    assert outcome(make_run(epochs=EPOCHS, checkpoint_path=path)) == outcome(undisturbed)


def test_a_finished_run_is_not_trained_again(make_run: MakeRun, path: Path) -> None:
    run = make_run(epochs=2, checkpoint_path=path)
    run.run()
    written = path.read_bytes()
    again = make_run(epochs=2, checkpoint_path=path, watcher=Interrupting(epoch=3, step=1))
    assert again.finished
    again.run()
    assert outcome(again) == outcome(run)
    assert path.read_bytes() == written


def test_patience_counts_across_interruptions(make_run: MakeRun, path: Path) -> None:
    options = {"epochs": 12, "patience": 2, "learning_rate": 1e-9}
    undisturbed = make_run(**options)
    undisturbed.run()
    assert len(undisturbed.reports) < 12
    while True:
        run = make_run(checkpoint_path=path, **options)
        if run.finished:
            break
        run.epoch()
    assert outcome(run) == outcome(undisturbed)


def test_time_adds_up_across_interruptions(make_run: MakeRun, path: Path) -> None:
    first = make_run(checkpoint_path=path)
    first.epoch()
    second = make_run(checkpoint_path=path)
    assert second.seconds == first.seconds > 0
    second.epoch()
    assert second.seconds == pytest.approx(first.seconds + second.reports[1].seconds)


def test_without_a_path_nothing_is_kept(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(epochs=1).run()
    assert list(tmp_path.iterdir()) == []


def test_divergence_keeps_the_last_finished_epoch(make_run: MakeRun, path: Path) -> None:
    run = make_run(checkpoint_path=path)
    run.epoch()
    written = path.read_bytes()
    with torch.no_grad():
        run.learner.named()["head.weight"].fill_(float("nan"))
    with pytest.raises(TrainingError):
        run.epoch()
    assert path.read_bytes() == written


def rows(seed: int) -> Dataset:
    return separable(20, seed=seed)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"epochs": 5},
        {"patience": 4},
        {"batch_size": 7},
        {"learning_rate": 0.01},
        {"length": 2},
        {"variant": None},
        {"variant": "task-only"},
        {"layers": "odd"},
        {"layers": (1, 2, 3)},
        {"template": "{text}."},
        {"max_length": 31},
        {"task": "other"},
        {"rows": (rows(1), rows(3))},
        {"rows": (rows(3), rows(2))},
        {"rows": (Dataset.of(rows(1), labels=("yes", "no")), rows(2))},
        {"rows": (Dataset.of(reversed(rows(1).examples)), rows(2))},
    ],
    ids=lambda change: "-".join(map(str, change)),
)
def test_the_checkpoint_of_another_run_is_refused(
    make_run: MakeRun, path: Path, change: dict[str, Any]
) -> None:
    options = {"rows": (rows(1), rows(2)), "checkpoint_path": path}
    make_run(**options).epoch()
    make_run(**options)
    with pytest.raises(TrainingError, match="other options, data or backbone") as refused:
        make_run(**{**options, **change})
    assert (refused.value.code, refused.value.field) == (
        TrainingFault.CHECKPOINT_MISMATCH,
        "checkpoint",
    )


def test_the_checkpoint_of_another_backbone_is_refused(
    make_run: MakeRun, path: Path, tmp_path: Path
) -> None:
    make_run(checkpoint_path=path).epoch()
    other: LoadedBackbone = tiny_bert(tmp_path / "other", seed=1)
    with pytest.raises(TrainingError, match="Delete it to start over") as refused:
        make_run(checkpoint_path=path, loaded=other)
    assert refused.value.code == TrainingFault.CHECKPOINT_MISMATCH


def flipped(data: bytes) -> bytes:
    """One bit of one learned number changed, which no format check can see."""
    place = data.index(b"capsule") + len(data) // 2
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: b"no checkpoint" * 99,
        lambda data: b"\x80\x02}q\x00." + data,
        flipped,
    ],
    ids=["empty", "half", "cut", "text", "pickle", "flipped"],
)
def test_a_damaged_checkpoint_is_refused(
    make_run: MakeRun, path: Path, damage: Callable[[bytes], bytes]
) -> None:
    make_run(checkpoint_path=path).epoch()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(TrainingError, match="Delete it to start over") as refused:
        make_run(checkpoint_path=path)
    assert refused.value.code == TrainingFault.CHECKPOINT_MISMATCH
    assert str(path) in refused.value.message
    assert checkpoint.load(FileKeeper(path.with_name("none.pt")), "any") is None
