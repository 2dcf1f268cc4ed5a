"""What a run that cannot go on says to do can be done."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from capsules.core import TokenBatch
from capsules.errors import TrainingError, TrainingFault
from capsules.training.run import Run
from tests.capsules.training.conftest import MakeRun
from tests.support.keepers import InMemoryKeeper


def diverge(run: Run) -> None:
    with torch.no_grad():
        run.learner.named()["capsule"][0, 0, 0] = float("nan")


def run_out_of_memory(run: Run) -> None:
    forward = run.learner.features

    def cramped(tokens: TokenBatch) -> Tensor:
        if torch.is_grad_enabled() and len(tokens) > 3:
            raise torch.OutOfMemoryError("full")
        return forward(tokens)

    run.learner.features = cramped  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("spoil", "code", "remedy"),
    [
        (diverge, TrainingFault.DIVERGED, {"learning_rate": 0.01}),
        (run_out_of_memory, TrainingFault.OUT_OF_MEMORY, {"batch_size": 2}),
    ],
)
def test_the_checkpoint_has_to_go_before_a_run_with_other_options(
    make_run: MakeRun, tmp_path: Path, spoil, code: TrainingFault, remedy: dict[str, float]
) -> None:
    path = tmp_path / "run.checkpoint"
    run = make_run(checkpoint_path=path)
    run.epoch()
    spoil(run)
    with pytest.raises(TrainingError) as stopped:
        run.run()
    assert stopped.value.code == code
    assert stopped.value.field == next(iter(remedy))
    assert f"Delete the checkpoint {path} first" in stopped.value.message
    with pytest.raises(TrainingError) as refused:
        make_run(checkpoint_path=path, **remedy)
    assert refused.value.code == TrainingFault.CHECKPOINT_MISMATCH
    path.unlink()
    make_run(checkpoint_path=path, **remedy).epoch()


@pytest.mark.parametrize("spoil", [diverge, run_out_of_memory])
def test_no_checkpoint_is_named_where_there_is_none(
    make_run: MakeRun, tmp_path: Path, spoil
) -> None:
    runs = [make_run(), make_run(checkpoint_path=tmp_path / "run.checkpoint")]
    for run in runs:
        spoil(run)
        with pytest.raises(TrainingError) as stopped:
            run.run()
        assert "checkpoint" not in stopped.value.message


@pytest.mark.parametrize("spoil", [diverge, run_out_of_memory])
def test_a_keeper_elsewhere_has_its_own_advice(make_run: MakeRun, spoil) -> None:
    keeper = InMemoryKeeper("Submit it again.")
    run = make_run(keeper=keeper)
    run.epoch()
    assert make_run(keeper=keeper).reports == run.reports
    spoil(run)
    with pytest.raises(TrainingError) as stopped:
        run.run()
    assert "first" not in stopped.value.message
    with pytest.raises(TrainingError, match=r"Submit it again, or repeat the run that wrote it"):
        make_run(keeper=keeper, seed=1)


def test_it_can_be_interrupted_between_batches_of_validation(make_run: MakeRun) -> None:
    asked: list[int] = []

    class Interruption(BaseException):
        pass

    def heed() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise Interruption

    run = make_run(heed=heed, keeper=InMemoryKeeper("Submit it again."))
    run.epoch()
    run.epoch()
    assert len(asked) == 2
    with pytest.raises(Interruption):
        run.epoch()
    assert len(run.reports) == 2
