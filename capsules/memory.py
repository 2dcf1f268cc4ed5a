"""Tells a lack of memory from other failures, and finds what would fit."""

from collections.abc import Callable

import torch

# What a lack of memory is called on a CPU: by torch's allocator, by oneDNN, which it has compute,
# and by C++.
WORDS = ("can't allocate memory", "could not create a primitive", "std::bad_alloc")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether a device or the machine had no memory left for a tensor."""
    # On a CPU torch raises a plain RuntimeError, which only its words tell apart.
    said = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(words in said for words in WORDS)


def empty_cache() -> None:
    """Let a device's memory go that is kept for tensors of sizes that may not come again."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def largest_that_fits(attempt: Callable[[int], object], too_many: int) -> int:
    """The largest of ``too_many / 2, too_many / 4, ...`` that has room; 0 where not even 1 has.

    Args:
        attempt: tries a number, and raises for lack of memory where it is too high.
        too_many: a number that is known to be.
    """
    size = too_many // 2
    while size:
        empty_cache()
        try:
            attempt(size)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        else:
            return size
        size //= 2
    return 0
