"""Telling a lack of memory from other failures."""

import pytest
import torch

from capsules.memory import is_out_of_memory, largest_that_fits


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
