"""The files that a process may have open, of which each connection is one."""

import resource
from contextlib import suppress

RESERVED = 512
"""What a server needs beside its connections, such as the databases' files; or half of what there
is, where that is less."""


def affordable(connections: int) -> int:
    """Have the system allow the files for so many connections, as far as it does.

    Shells give 1,024 files to whatever they start, for the sake of programs that could not do with
    more, and leave it to all others to ask.

    Returns:
        How many connections there can be.
    """
    needed = connections + RESERVED
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY or allowed >= needed:
        return connections
    wanted = needed if most == resource.RLIM_INFINITY else min(needed, most)
    # Some systems tell a limit that is higher than what they give.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
        allowed = wanted
    return min(connections, allowed - min(RESERVED, allowed // 2))
