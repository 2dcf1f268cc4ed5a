"""Tensors of many capsules under one leading axis, so that one operation gathers any of them."""

import math
import mmap
from collections.abc import Mapping
from contextlib import suppress

import torch
from torch import Tensor

from service.engine.ranges import FreeRanges

HUGE_PAGE_BYTES = 2 * 1024**2


def allocate(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """An uninitialised float32 tensor whose memory goes back to the system as soon as it is freed.

    On a CPU it gets a mapping of its own: an outgrown slab that malloc had placed would leave a
    hole in the heap, and the holes of a growing bank add up to more than the bank. Of a mapping,
    only what has been written takes memory. Large pages are asked for, since the rows of a batch
    are scattered over all of it: with small ones, each costs several misses of the page table.

    Args:
        shape: of the tensor.
        device: where it is.
    """
    count = math.prod(shape)
    if device.type != "cpu" or not count:
        return torch.empty(shape, dtype=torch.float32, device=device)
    nbytes = count * torch.float32.itemsize
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them refuses, and small pages do as well
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.float32).view(shape)


# Slots of a slab without tensors, which take no memory.
UNLIMITED = 2**62


class Slab:
    """Named float32 tensors [capacity, ...], whose slots are handed out in rows and taken back.

    Never shrinks: slots that come back are handed out again first. On a CPU, where slots that were
    never used take no memory, it doubles as it grows, so that it is hardly ever copied; elsewhere
    it grows by a sixteenth, so that about that much is idle at most.

    Not thread-safe by itself, but growing is split in two, so that its owner can make the copy
    without holding up readers. A reader that has taken :attr:`tensors` may go on with them: the
    slots it knows do not change in them.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], device: torch.device, expected: int = 0
    ) -> None:
        """Start empty.

        Args:
            shapes: of one slot's tensors, by name.
            device: where the tensors are.
            expected: how many slots it is likely to hand out, for which it makes room at once
                where that costs nothing yet.
        """
        self.device = device
        self.lazy = device.type == "cpu"
        self.expected = expected
        self.capacity = 0
        self.used = 0
        self.free = FreeRanges()
        self.tensors = {name: allocate((0, *shape), device) for name, shape in shapes.items()}
        self.slot_bytes = torch.float32.itemsize * sum(map(math.prod, shapes.values()))

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, idle slots included."""
        return self.slot_bytes * (self.used if self.lazy else self.capacity)

    def has_room(self, count: int) -> bool:
        """Whether `count` slots in a row can be handed out without growing."""
        return self.free.fits(count)

    def larger(self, count: int) -> dict[str, Tensor]:
        """Copies of the tensors with room for `count` slots in a row; changes nothing."""
        capacity = self.capacity
        least = max(self.free.tail(capacity) + count, capacity + capacity // 16)
        if self.lazy:
            # Some systems promise no memory that they do not have, used or not.
            with suppress(OSError, OverflowError):
                return self.copied(max(least, 2 * capacity, self.expected))
        return self.copied(least)

    def copied(self, capacity: int) -> dict[str, Tensor]:
        """Copies of the tensors with room for so many slots."""
        copies = {}
        for name, tensor in self.tensors.items():
            copy = allocate((capacity, *tensor.shape[1:]), self.device)
            # Not the slots that were never used, which to copy would make take memory.
            copy[: self.used] = tensor[: self.used]
            copies[name] = copy
        return copies

    def adopt(self, tensors: dict[str, Tensor]) -> None:
        """Go on with the tensors that :meth:`larger` gave."""
        grown = next((tensor.shape[0] for tensor in tensors.values()), UNLIMITED)
        self.free.give(self.capacity, grown)
        self.tensors = tensors
        self.capacity = grown

    def take(self, count: int) -> int:
        """Hand out `count` slots in a row, by the first of them; there must be room."""
        start = self.free.take(count)
        self.used = max(self.used, start + count)
        return start

    def give(self, start: int, count: int) -> None:
        """Take slots back; nothing may read them any more."""
        self.free.give(start, start + count)

    def write(self, start: int, tensors: Mapping[str, Tensor]) -> None:
        """Fill slots that no reader knows yet.

        Args:
            start: the first of them.
            tensors: by name, each [count, ...], on any device.
        """
        for name, tensor in tensors.items():
            self.tensors[name][start : start + tensor.shape[0]] = tensor

    def select(self, index: Tensor) -> dict[str, Tensor]:
        """Copies of what any slots hold, by name, each [b, ...].

        Args:
            index: [b] int64 on the slab's device.
        """
        return {name: tensor.index_select(0, index) for name, tensor in self.tensors.items()}

    def read(self, start: int, count: int) -> dict[str, Tensor]:
        """Copies on the CPU of what slots in a row hold, by name, each [count, ...]."""
        return {
            name: tensor[start : start + count].to("cpu", copy=True)
            for name, tensor in self.tensors.items()
        }
