"""Tensors of many capsules under one leading axis, so that one operation gathers any of them."""

import math
from collections.abc import Mapping
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

import torch
from torch import Tensor

from service.engine.ranges import FreeRanges


def allocate(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """An uninitialised float32 tensor whose memory goes back to the system as soon as it is freed.

    On a CPU it gets a mapping of its own: an outgrown slab that malloc had placed would leave a
    hole in the heap, and the holes of a growing bank add up to more than the bank.

    Args:
        shape: of the tensor.
        device: where it is.
    """
    count = math.prod(shape)
    if device.type != "cpu" or not count:
        return torch.empty(shape, dtype=torch.float32, device=device)
    memory = mmap(-1, count * torch.float32.itemsize, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=torch.float32).view(shape)


# Slots of a slab without tensors, which take no memory.
UNLIMITED = 2**62


class Slab:
    """Named float32 tensors [capacity, ...], whose slots are handed out in rows and taken back.

    Grows by a sixteenth, so that about that much is idle at most, and never shrinks: slots that come
    back are handed out again first. Not thread-safe by itself, but growing is split in two, so
    that its owner can make the copy without holding up readers. A reader that has taken
    :attr:`tensors` may go on with them: the slots it knows do not change in them.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], device: torch.device) -> None:
        """Start empty.

        Args:
            shapes: of one slot's tensors, by name.
            device: where the tensors are.
        """
        self.device = device
        self.capacity = 0
        self.free = FreeRanges()
        self.tensors = {name: allocate((0, *shape), device) for name, shape in shapes.items()}

    @property
    def nbytes(self) -> int:
        """Bytes allocated, idle slots included."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def has_room(self, count: int) -> bool:
        """Whether `count` slots in a row can be handed out without growing."""
        return self.free.fits(count)

    def larger(self, count: int) -> dict[str, Tensor]:
        """Copies of the tensors with room for `count` slots in a row; changes nothing."""
        capacity = self.capacity
        grown = max(self.free.tail(capacity) + count, capacity + capacity // 16)
        copies = {}
        for name, tensor in self.tensors.items():
            copy = allocate((grown, *tensor.shape[1:]), self.device)
            copy[:capacity] = tensor[:capacity]
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
        return self.free.take(count)

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
