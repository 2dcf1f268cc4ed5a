"""A batch that does not fit names the size that would."""

import pytest
import torch
from torch import Tensor

from capsules.core import TokenBatch
from capsules.errors import TrainingError, TrainingFault
from capsules.memory import is_out_of_memory, largest_that_fits
from tests.capsules.training.conftest import MakeRun


def test_what_torch_raises_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**58)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(RuntimeError("could not create a primitive"))
    assert is_out_of_memory(RuntimeError("std::bad_alloc"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@pytest.mark.parametrize(("room", "expected"), [(100, 16), (16, 16), (15, 8), (1, 1), (0, 0)])
def test_the_largest_half_that_fits_is_found(room: int, expected: int) -> None:
    def attempt(size: int) -> None:
        if size > room:
            raise torch.OutOfMemoryError("full")

    assert largest_that_fits(attempt, 32) == expected


def test_other_failures_are_not_taken_for_it() -> None:
    def attempt(size: int) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        largest_that_fits(attempt, 4)


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
