"""All capsules that can be served, where the model thread gathers any mix of them at once."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from capsules.artefact.file import Capsule
from capsules.backbones.base import LoadedBackbone, WordBackbone
from capsules.injection import PromptGroup, Prompts
from capsules.scoring import label_trie
from capsules.template import Template
from capsules.trie import LabelTrie
from service.engine.heads import Heads, head_rows
from service.engine.records import Served
from service.engine.tiers import Entry, Hosted, Kind, Resident, Tiers
from service.engine.transfer import to_device


@dataclass(frozen=True, slots=True)
class Gathered:
    """The capsules of one batch's rows: what the executor takes, and what is applied after it."""

    prompts: Prompts
    heads: Heads


@dataclass(frozen=True, slots=True)
class BankStats:
    """What a bank holds at one moment.

    Attributes:
        resident: capsules on the device.
        host: capsules in host memory.
        pinned: capsules that rows in flight use, wherever they are.
        bytes: taken on the device, idle slots included.
        host_bytes: taken by the tensors of the capsules in host memory.
        page_ins: capsules that were brought from host memory to the device, ever.
        evictions: capsules that made room for those, ever.
    """

    resident: int
    host: int
    pinned: int
    bytes: int
    host_bytes: int
    page_ins: int = 0
    evictions: int = 0


class Bank:
    """Capsule versions by their :class:`Served`; any thread may call any method.

    A place holds one version from :meth:`add` until that is removed and no row uses it any more.
    It never changes in between, so a pinned capsule is read without a lock.

    `lock` guards the bookkeeping and is held for moments only; the tiers' `writing`, under which
    it may be taken, serialises changes to tensors.
    """

    def __init__(self, loaded: LoadedBackbone, device: torch.device, slots: int) -> None:
        """Start empty.

        Args:
            loaded: the backbone that the capsules are for.
            device: where executors expect them.
            slots: most capsules on the device; the others wait in host memory.
        """
        self.loaded = loaded
        self.device = device
        self.lock = threading.Lock()
        self.tiers = Tiers(loaded.info.geometry, device, slots, self.lock)
        self.entries: dict[Served, Entry] = {}
        self.pinned = 0
        self.templates: WeakValueDictionary[str, Template] = WeakValueDictionary()

    def expect(self, capsules: int, nbytes: int) -> None:
        """Make room for capsules that are about to come; see :meth:`Tiers.expect`."""
        self.tiers.expect(capsules, nbytes)

    def add(self, capsule: Capsule, *, version: int, digest: str) -> Served:
        """Copy a capsule in: to the device while there is room, else to host memory.

        Args:
            capsule: checked, and of this backbone.
            version: its number within the task.
            digest: hex sha256 of its file.

        Raises:
            ArtefactError: its label words cannot be told apart by this backbone.
        """
        manifest = capsule.manifest
        fingerprint = self.loaded.info.fingerprint
        assert manifest.backbone.fingerprint == fingerprint, "a capsule of another backbone"
        trie, head = self.head(capsule)
        tensors = Hosted(
            prompt={
                name: tensor.unsqueeze(0)
                for name, tensor in capsule.tensors.items()
                if not name.startswith("head.")
            },
            head=head,
        )
        kind = self.tiers.kind(manifest.variant, manifest.length, manifest.injected)
        served = Served(
            task=manifest.task,
            version=version,
            digest=digest,
            labels=tuple(manifest.labels),
            template=self.shared(Template(manifest.template)),
            max_tokens=manifest.max_length - kind.slots,
            slots=kind.slots,
            trie=trie,
        )
        entry = self.tiers.admit(kind, tensors)
        with self.lock:
            self.entries[served] = entry
        return served

    def head(self, capsule: Capsule) -> tuple[LabelTrie | None, dict[str, Tensor]]:
        """What scores a capsule's labels: its own head, or rows of the vocabulary and their trie.

        Raises:
            ArtefactError: see :meth:`add`.
        """
        words = capsule.manifest.words
        backbone = self.loaded.backbone
        if words is None or not isinstance(backbone, WordBackbone):
            return None, head_rows(capsule.tensors["head.weight"], capsule.tensors.get("head.bias"))
        trie = label_trie(self.loaded, words)
        return trie, head_rows(backbone.word_rows(trie.tokens).cpu(), None)

    def shared(self, template: Template) -> Template:
        """An equal template that other capsules use already; thousands have the same."""
        with self.lock:
            return self.templates.setdefault(template.source, template)

    def remove(self, served: Served) -> None:
        """Give a capsule up; its place is free once no row in flight uses it.

        Removing one that is gone changes nothing.
        """
        with self.lock:
            entry = self.entries.get(served)
            if entry is None:
                return
            entry.removed = True
            if not entry.pins:
                self.forget(served)

    def forget(self, served: Served) -> None:
        """Free the place of a capsule that is removed and not pinned; the lock is held."""
        self.tiers.drop(self.entries.pop(served))

    def pin(self, capsules: Iterable[Served]) -> set[Served]:
        """Keep capsules, even if they are removed, until they are unpinned as often.

        Returns:
            Those that have been removed already, which are not pinned.
        """
        gone = set()
        with self.lock:
            for served in capsules:
                entry = self.entries.get(served)
                if entry is None or entry.removed:
                    gone.add(served)
                    continue
                entry.pins += 1
                if entry.pins == 1:
                    self.pinned += 1
                    self.tiers.mark_used(entry, busy=True)
        return gone

    def unpin(self, capsules: Iterable[Served]) -> None:
        """Undo one pin of each."""
        with self.lock:
            for served in capsules:
                entry = self.entries[served]
                assert entry.pins, "a capsule was unpinned more often than pinned"
                entry.pins -= 1
                if entry.pins:
                    continue
                self.pinned -= 1
                self.tiers.mark_used(entry, busy=False)
                if entry.removed:
                    self.forget(served)

    @contextmanager
    def gather(self, capsules: Sequence[Served]) -> Iterator[Gathered]:
        """Collect the tensors of a batch, first bringing to the device what is not there.

        They may be used inside the context; heads are read where they lie.

        Args:
            capsules: the capsule of each row, pinned. All batches that are gathered at a time
                must fit into `slots`.
        """
        tries = [served.trie for served in capsules]
        with self.lock:
            entries = [self.entries[served] for served in capsules]
            assert all(entry.pins for entry in entries), "gathered capsules must be pinned"
            for entry in entries:
                entry.leases += 1
        try:
            self.tiers.page_in(
                dict.fromkeys(entry for entry in entries if isinstance(entry.place, Hosted))
            )
            yield self.collect(entries, tries)
        finally:
            with self.lock:
                for entry in entries:
                    entry.leases -= 1

    def collect(self, entries: Sequence[Entry], tries: Sequence[LabelTrie | None]) -> Gathered:
        """The tensors of leased, resident capsules, and how their labels are scored."""
        places: list[Resident] = []
        rows: dict[Kind, list[int]] = {}
        for row, entry in enumerate(entries):
            assert isinstance(entry.place, Resident), "gathered capsules must be resident"
            places.append(entry.place)
            rows.setdefault(entry.kind, []).append(row)
        parts = []
        for members in rows.values():
            parts += [np.array([places[row].slot for row in members]), np.array(members)]
        index = to_device(parts, self.device)
        groups = tuple(
            PromptGroup(
                variant=kind.variant,
                length=kind.length,
                layers=kind.layers,
                tensors=kind.slab.select(slots),
                rows=members if len(rows) > 1 else None,
            )
            for kind, slots, members in zip(rows, index[::2], index[1::2], strict=True)
        )
        heads = Heads(
            starts=[place.head for place in places],
            counts=[place.rows for place in places],
            tries=tries,
            **self.tiers.heads.tensors,
        )
        return Gathered(Prompts(groups), heads)

    def stats(self) -> BankStats:
        """What it holds now."""
        with self.lock:
            return BankStats(
                resident=self.tiers.resident,
                host=len(self.entries) - self.tiers.resident,
                pinned=self.pinned,
                bytes=self.tiers.nbytes(),
                host_bytes=self.tiers.host_bytes,
                page_ins=self.tiers.page_ins,
                evictions=self.tiers.evictions,
            )
