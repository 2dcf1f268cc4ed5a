"""Where the tensors of capsules are: in slabs on the device, or in host memory."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from capsules.core import Geometry
from capsules.variants.base import Variant
from capsules.variants.registry import variant
from service.engine.heads import head_slab
from service.engine.slab import Slab

AHEAD = 2
"""How often the capsules that are expected fit into the room that is made for them."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Capsules of one variant, length and choice of layers, which one call of the variant serves.

    Attributes:
        variant: how their tokens are formed.
        length: of the capsules.
        layers: indices of the layers they enter, from 0.
        slab: their learned tensors, heads excluded; a capsule a slot.
    """

    variant: Variant
    length: int
    layers: tuple[int, ...]
    slab: Slab

    @property
    def slots(self) -> int:
        """Positions they take in the sequence."""
        return self.variant.slots(self.length)


@dataclass(frozen=True, slots=True)
class Resident:
    """A place on the device.

    Attributes:
        slot: in the slab of its kind.
        head: the first of its slots in the slab of heads.
        rows: how many they are.
    """

    slot: int
    head: int
    rows: int


@dataclass(frozen=True, slots=True)
class Hosted:
    """A place in host memory: the tensors as the slabs take them, float32, on the CPU.

    Attributes:
        prompt: the learned tensors by name, each [1, ...].
        head: `weight` [R, D] and `bias` [R], a row a label; where labels are words, a row a token
            of the trie.
    """

    prompt: Mapping[str, Tensor]
    head: Mapping[str, Tensor]

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.nbytes for tensor in chain(self.prompt.values(), self.head.values()))

    def copied(self) -> "Hosted":
        """The same in memory of its own."""
        return Hosted(
            prompt={name: tensor.clone() for name, tensor in self.prompt.items()},
            head={name: tensor.clone() for name, tensor in self.head.items()},
        )


@dataclass(slots=True, eq=False)
class Entry:
    """A capsule; it has one place, so it is never in both tiers.

    Attributes:
        kind: which slab it belongs in.
        place: where its tensors are.
        pins: how many rows in flight use it.
        leases: how many of them are in a batch that is running, which keeps it on the device.
        removed: whether it is to go once no row uses it.
    """

    kind: Kind
    place: Resident | Hosted
    pins: int = 0
    leases: int = 0
    removed: bool = False


class Tiers:
    """Puts capsules on the device while there is room, and makes room for those that are needed.

    `writing` serialises whatever fills or grows slabs. The owner's `lock`, which guards the
    bookkeeping, is taken under it, and only for moments: no tensor is copied under it.
    """

    def __init__(
        self, geometry: Geometry, device: torch.device, slots: int, lock: threading.Lock
    ) -> None:
        """Start empty.

        Args:
            geometry: of the backbone.
            device: where executors expect capsules.
            slots: most capsules on the device.
            lock: the owner's.
        """
        self.geometry = geometry
        self.device = device
        self.slots = slots
        self.lock = lock
        self.writing = threading.Lock()
        self.kinds: dict[tuple[str, int, tuple[int, ...]], Kind] = {}
        self.heads = head_slab(geometry.hidden_size, device)
        self.expected = 0
        self.resident = 0
        self.host_bytes = 0
        self.page_ins = 0
        self.evictions = 0
        # Resident capsules: idle ones from least to most recently used, busy ones as pinned.
        self.idle: OrderedDict[Entry, None] = OrderedDict()
        self.busy: OrderedDict[Entry, None] = OrderedDict()

    def expect(self, capsules: int, nbytes: int) -> None:
        """Make room for capsules that are about to come, so that slabs need not grow on the way.

        As much again is left for those that come later, and for the gaps that heads of all sizes
        leave as they come and go. Where room takes memory before it is used, none is made.

        Args:
            capsules: how many they are.
            nbytes: of their tensors, at most.
        """
        fitting = min(capsules, self.slots)
        rows = nbytes // self.heads.slot_bytes * fitting // max(capsules, 1)
        with self.writing:
            self.expected = AHEAD * fitting
            self.heads.expected = AHEAD * rows
            for kind in self.kinds.values():
                kind.slab.expected = self.expected

    def kind(self, name: str, length: int, layers: tuple[int, ...]) -> Kind:
        """The kind of a variant, length and choice of layers, made on first use."""
        key = (name, length, layers)
        with self.writing:
            found = self.kinds.get(key)
            if found is None:
                chosen = variant(name)
                shapes = chosen.shapes(self.geometry, len(layers), length)
                slab = Slab(shapes, self.device, self.expected)
                found = Kind(chosen, length, layers, slab)
                # Replaced rather than changed, since the statistics look at it meanwhile.
                self.kinds = {**self.kinds, key: found}
            return found

    def nbytes(self) -> int:
        """Bytes allocated on the device, idle slots included."""
        return self.heads.nbytes + sum(kind.slab.nbytes for kind in self.kinds.values())

    def admit(self, kind: Kind, tensors: Hosted) -> Entry:
        """Copy a new capsule in.

        Beyond the device's capacity it starts in host memory: moving another out for one that may
        never be asked for would copy twice for nothing.
        """
        with self.writing:
            if self.resident >= self.slots:
                entry = Entry(kind, tensors.copied())
                with self.lock:
                    self.host_bytes += tensors.nbytes
                return entry
            place = self.upload(kind, tensors)
            entry = Entry(kind, place)
            with self.lock:
                self.resident += 1
                self.idle[entry] = None
            return entry

    def upload(self, kind: Kind, tensors: Hosted) -> Resident:
        """Copy tensors into free slots; `writing` is held."""
        rows = tensors.head["weight"].shape[0]
        with ExitStack() as undo:
            slot = self.claim(kind.slab, 1)
            undo.callback(self.give, kind.slab, slot, 1)
            head = self.claim(self.heads, rows)
            undo.callback(self.give, self.heads, head, rows)
            kind.slab.write(slot, tensors.prompt)
            self.heads.write(head, tensors.head)
            undo.pop_all()
        return Resident(slot, head, rows)

    def claim(self, slab: Slab, count: int) -> int:
        """Take slots that nobody reads, growing the slab where it is full; `writing` is held."""
        with self.lock:
            if slab.has_room(count):
                return slab.take(count)
        # Slots may come back meanwhile, but nobody else takes any.
        larger = slab.larger(count)
        with self.lock:
            slab.adopt(larger)
            return slab.take(count)

    def give(self, slab: Slab, start: int, count: int) -> None:
        """Hand slots back that no reader has come to know."""
        with self.lock:
            slab.give(start, count)

    def mark_used(self, entry: Entry, *, busy: bool) -> None:
        """Note that a capsule was pinned for the first time or unpinned; the lock is held."""
        if isinstance(entry.place, Resident):
            self.idle.pop(entry, None)
            self.busy.pop(entry, None)
            (self.busy if busy else self.idle)[entry] = None

    def drop(self, entry: Entry) -> None:
        """Free a capsule's place, which no batch uses; the lock is held."""
        place = entry.place
        if isinstance(place, Hosted):
            self.host_bytes -= place.nbytes
            return
        self.idle.pop(entry, None)
        self.busy.pop(entry, None)
        self.resident -= 1
        entry.kind.slab.give(place.slot, 1)
        self.heads.give(place.head, place.rows)

    def page_in(self, wanted: Iterable[Entry]) -> None:
        """Bring leased capsules to the device, moving out those that will be needed last.

        Args:
            wanted: distinct capsules; those that are there already are left alone. No more than
                `slots` may be leased at a time.
        """
        with self.writing:
            for entry in wanted:
                tensors = entry.place
                if isinstance(tensors, Resident):
                    continue
                self.make_room()
                place = self.upload(entry.kind, tensors)
                with self.lock:
                    self.drop(entry)
                    entry.place = place
                    self.resident += 1
                    self.mark_used(entry, busy=True)
                    self.page_ins += 1

    def make_room(self) -> None:
        """Move capsules to host memory until there is room for one; `writing` is held."""
        while True:
            with self.lock:
                if self.resident < self.slots:
                    return
                # Idle ones before those that waiting rows will need, the last of these first.
                candidates = chain(self.idle, reversed(self.busy))
                victim = next((entry for entry in candidates if not entry.leases), None)
                assert victim is not None, "running batches hold more capsules than there are slots"
                place = victim.place
            assert isinstance(place, Resident), "only capsules on the device are idle or busy"
            # It may be dropped or leased meanwhile, but its slots keep what they hold.
            tensors = Hosted(
                prompt=victim.kind.slab.read(place.slot, 1),
                head=self.heads.read(place.head, place.rows),
            )
            with self.lock:
                dropped = victim not in self.idle and victim not in self.busy
                if not dropped and not victim.leases:
                    self.drop(victim)
                    victim.place = tensors
                    self.host_bytes += tensors.nbytes
                    self.evictions += 1
