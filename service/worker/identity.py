"""Which process this is, and whether another one still lives.

A process's token tells where and when it was started, so that a slot whose process is dead can be
taken at once, and never from a living one: process ids are given out again, machines share names,
and containers on one machine share process ids.
"""

import hashlib
import os
import socket
import uuid
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from service.jobs.records import Slot

PROC = Path("/proc")
DEAD_STATES = frozenset({"Z", "X"})
"""Of a process that has ended, in the kernel's words."""

STATE, START_TIME = 0, 19
"""Positions in `/proc/PID/stat` after the name: the state, and when it began, in clock ticks."""

PLACE_DIGITS = 16
SECRET_DIGITS = 16
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Identity:
    """A worker process.

    Attributes:
        host: name of its machine, for people.
        pid: its process id there.
        token: `PLACE.START.SECRET`; no other process has the same.
    """

    host: str
    pid: int
    token: str

    @property
    def place(self) -> str:
        """Where its process id means something: a machine since its last start, or a container."""
        return self.token.partition(".")[0]


def this_process() -> Identity:
    """Identify the process that asks, with a new token at each call."""
    pid = os.getpid()
    secret = uuid.uuid4().hex[:SECRET_DIGITS]
    return Identity(
        host=socket.gethostname(), pid=pid, token=f"{this_place()}.{started(pid)}.{secret}"
    )


def this_place() -> str:
    """Digest of the machine, its last start and the namespace that process ids are counted in."""
    parts = (
        socket.gethostname(),
        contents(PROC / "sys/kernel/random/boot_id"),
        target(PROC / "self/ns/pid"),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:PLACE_DIGITS]


def is_dead(slot: Slot, here: str) -> bool:
    """Whether the process that holds a slot is known to have ended.

    Args:
        slot: as the ledger keeps it.
        here: the place of the process that asks; nothing is known of others.
    """
    place, _, rest = slot.token.partition(".")
    start = rest.partition(".")[0]
    return place == here and start != UNKNOWN and started(slot.pid) != start


def vacant(slots: list[Slot], here: str, stale_before: datetime) -> list[str]:
    """Tokens of the slots that may be taken although nobody gave them back.

    Args:
        slots: all of them.
        here: the place of the process that asks.
        stale_before: processes not heard of since then count as lost.
    """
    return [slot.token for slot in slots if slot.seen_at < stale_before or is_dead(slot, here)]


def started(pid: int) -> str:
    """When a process began, as its kernel counts; where there is none, or no telling, `unknown`."""
    # The name, in parentheses, may itself hold spaces and parentheses.
    fields = contents(PROC / str(pid) / "stat").rpartition(")")[2].split()
    if len(fields) <= START_TIME or fields[STATE] in DEAD_STATES:
        return UNKNOWN
    return fields[START_TIME]


def contents(path: Path) -> str:
    """A small file's text; nothing where it cannot be read, as outside of Linux."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def target(link: Path) -> str:
    """What a link points at; nothing where it cannot be read."""
    try:
        return str(link.readlink())
    except OSError:
        return ""
