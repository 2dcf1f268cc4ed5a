"""The files that a process may have open, of which each connection is one."""

import resource
from contextlib import suppress

RESERVED = 512
"""What a server needs beside its connections, such as the databases' files."""

PLENTY = 1024 * 1024
"""As many as are ever asked for."""


def raise_limit() -> int:
    """Have the system allow as many open files as it would, and say how many.

    Shells give 1,024 to whatever they start, for the sake of programs that could not do with more,
    and leave it to all others to ask.
    """
    allowed, most = (
        PLENTY if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    wanted = min(most, PLENTY)
    if allowed < wanted:
        # The hard limit stays; some systems tell one that is higher than what they give.
        with suppress(OSError, ValueError):
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return allowed


def affordable(connections: int, files: int) -> int:
    """How many of so many connections there can be where so many files may be open; at least one."""
    return max(1, min(connections, files - RESERVED))
