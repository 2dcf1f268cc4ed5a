"""Graphs on disk, so that a backbone is exported once."""

import hashlib
import json
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from torch.backends.cpu import get_cpu_capability

from capsules.executors.onnx.graph import graph_file
from capsules.release import release

FORMAT = 1
"""Counts on whenever graphs come to look different for reasons that no version below tells."""

MAKERS = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")
"""Packages whose version may change what a graph looks like."""


class GraphCache:
    """A folder of graphs, each in a folder of its own, which appears whole or not at all."""

    def __init__(self, folder: Path) -> None:
        """Look at a folder.

        Args:
            folder: where graphs are kept; made when one is.
        """
        self.folder = folder

    def place(self, fingerprint: str, *, quantized: bool) -> Path:
        """The folder of a backbone's graph, which may be missing.

        Args:
            fingerprint: of the backbone.
            quantized: whether its weights are 8-bit integers.
        """
        makers = {name: version(name) for name in MAKERS}
        made = json.dumps([FORMAT, fingerprint, quantized, makers], sort_keys=True)
        return self.folder / hashlib.sha256(made.encode()).hexdigest()[:32]

    def find(self, fingerprint: str, *, quantized: bool) -> Path | None:
        """The graph's file, or None where there is none; it may be one that cannot be read."""
        path = graph_file(self.place(fingerprint, quantized=quantized), quantized=quantized)
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            pass  # whoever reads it is told
        return path

    def discard(self, fingerprint: str, *, quantized: bool) -> None:
        """Remove a graph that is not what it should be."""
        place = self.place(fingerprint, quantized=quantized)
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):  # it may be a file
            place.unlink()

    def refusal_file(self, fingerprint: str, *, quantized: bool) -> Path:
        """Where it is written down why a graph was refused; there is none where it was not.

        A graph may be wrong on one kind of processor alone, and our own code have a share in it.
        """
        decided = json.dumps([release(), platform.machine(), get_cpu_capability()])
        mark = hashlib.sha256(decided.encode()).hexdigest()[:8]
        place = self.place(fingerprint, quantized=quantized)
        return place.with_name(f"{place.name}-{mark}.refused")

    def refusal(self, fingerprint: str, *, quantized: bool) -> str | None:
        """Why a graph was refused that had just been made, or None where none was."""
        try:
            path = self.refusal_file(fingerprint, quantized=quantized)
            return path.read_text(encoding="utf-8") or None
        except (OSError, UnicodeDecodeError):
            return None

    def refuse(self, fingerprint: str, reason: str, *, quantized: bool) -> None:
        """Remove a graph that has just been made, and keep in mind that it is not worth making here.

        Args:
            fingerprint: of the backbone.
            reason: why that is so.
            quantized: whether its weights are 8-bit integers.

        Raises:
            OSError: the reason cannot be written down.
        """
        self.discard(fingerprint, quantized=quantized)
        path = self.refusal_file(fingerprint, quantized=quantized)
        unfinished = path.with_name(f".{path.name}")
        unfinished.write_text(reason, encoding="utf-8")
        unfinished.replace(path)

    def sweep(self, fingerprint: str, *, quantized: bool) -> None:
        """Remove what makers left that were killed; for whoever holds the lock."""
        for left in self.folder.glob(f"{self.unfinished(fingerprint, quantized=quantized)}*"):
            shutil.rmtree(left, ignore_errors=True)

    def unfinished(self, fingerprint: str, *, quantized: bool) -> str:
        """How the names of folders begin that a graph is written into."""
        return f".{self.place(fingerprint, quantized=quantized).name}-"

    def lock_file(self, fingerprint: str, *, quantized: bool) -> Path:
        """What processes lock that want the same graph, so that one makes it.

        Raises:
            OSError: the folder cannot be made.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.place(fingerprint, quantized=quantized).with_suffix(".lock")

    @contextmanager
    def making(self, fingerprint: str, *, quantized: bool) -> Iterator[Path]:
        """An empty folder to write a graph into, which is kept unless something is raised.

        Raises:
            OSError: the folder cannot be written to.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.place(fingerprint, quantized=quantized)
        prefix = self.unfinished(fingerprint, quantized=quantized)
        # Not by tempfile, whose folders no other user can read: a server may run as one.
        made = self.folder / f"{prefix}{uuid4().hex}"
        made.mkdir()
        try:
            yield made
            if not place.exists():
                made.rename(place)
        finally:
            shutil.rmtree(made, ignore_errors=True)
