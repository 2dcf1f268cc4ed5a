"""A batch that does not fit names the size that would."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from capsules.core import TokenBatch
from capsules.errors import TrainingError, TrainingFault
from capsules.training.trainable import Trainable
from tests.capsules.training.conftest import MakeRun


@pytest.mark.parametrize(("room", "says"), [(3, "batch_size 2 would fit"), (0, "lower max_length")])
def test_a_run_stops_and_says_what_would_fit(make_run: MakeRun, room: int, says: str) -> None:
    run = make_run(batch_size=8)
    forward = run.learner.features

    def cramped(tokens: TokenBatch) -> Tensor:
        if torch.is_grad_enabled() and len(tokens) > room:
            raise torch.OutOfMemoryError("full")
        return forward(tokens)

    run.learner.features = cramped  # type: ignore[method-assign]
    with pytest.raises(TrainingError, match=says) as stopped:
        run.run()
    assert stopped.value.code == TrainingFault.OUT_OF_MEMORY
    assert run.reports == []
    assert all(parameter.grad is None for parameter in run.learner.parameters())


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Leaves no memory for a single row."""

    def features(learner: Trainable, tokens: TokenBatch) -> Tensor:
        raise torch.OutOfMemoryError("full")

    return lambda: monkeypatch.setattr(Trainable, "features", features)


TOLD = r"even one row; lower max_length\.$"


def test_a_row_that_cannot_be_measured_is_told(make_run: MakeRun, full: Callable[[], None]) -> None:
    run = make_run()
    full()
    with pytest.raises(TrainingError, match=TOLD) as stopped:
        run.scores(run.validation_rows)
    assert (stopped.value.code, stopped.value.field) == (
        TrainingFault.OUT_OF_MEMORY,
        "max_length",
    )


def test_features_that_cannot_be_made_are_told(make_run: MakeRun, full: Callable[[], None]) -> None:
    full()
    with pytest.raises(TrainingError, match=TOLD):
        make_run(variant=None)
