"""Moves index vectors from Python to the device."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Slots = NDArray[np.int64]


def to_device(parts: Sequence[Slots], device: torch.device) -> tuple[Tensor, ...]:
    """Integer vectors as tensors on a device, in one transfer that does not wait for it."""
    if device.type == "cpu":
        return tuple(map(torch.from_numpy, parts))
    joined = torch.from_numpy(np.concatenate(parts))
    if device.type == "cuda":
        joined = joined.pin_memory()
    return torch.split(joined.to(device, non_blocking=True), [len(part) for part in parts])
