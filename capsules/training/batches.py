"""The order in which rows are trained on."""

from collections.abc import Sequence

import torch

# Rows are sorted by length within pools of this many batches: enough to leave little padding,
# few enough that an epoch's batches differ from the last one's.
POOL_BATCHES = 50


def length_bucketed(
    lengths: Sequence[int], batch_size: int, *, seed: int, epoch: int
) -> list[list[int]]:
    """Shuffled batches of rows of similar length, the same for the same seed and epoch.

    Args:
        lengths: tokens of each row.
        batch_size: rows a batch; the last of a pool may have fewer.
        seed: of the run.
        epoch: from 1; each has an order of its own.

    Returns:
        Batches of row numbers that hold every row once.
    """
    # A generator takes seeds below 2**64 only.
    generator = torch.Generator().manual_seed((seed * 100_003 + epoch) % 2**63)
    order = torch.randperm(len(lengths), generator=generator).tolist()
    pool_size = batch_size * POOL_BATCHES
    batches: list[list[int]] = []
    for start in range(0, len(order), pool_size):
        pool = sorted(order[start : start + pool_size], key=lambda row: lengths[row])
        batches += [pool[at : at + batch_size] for at in range(0, len(pool), batch_size)]
    shuffled = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[position] for position in shuffled]
