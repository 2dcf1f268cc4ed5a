"""How much a JSON text holds, told without building any of it.

A few MB of nested brackets or repeated keys cost seconds to build, and no other thread runs
meanwhile; a text that no honest writer would write is told by its number of values.
"""

import numpy as np


def holds_more(text: bytes, limit: int) -> bool:
    """Whether a JSON text may hold more than so many values, nested ones included.

    Args:
        text: JSON in UTF-8; of anything else the answer means nothing, but it is as fast.
        limit: values that are still few enough.
    """
    # Most texts are told by their length, or by all their commas and brackets, strings' included.
    if len(text) <= limit or sum(map(text.count, (b",", b"[", b"{"))) < limit:
        return False
    return count_values(text) > limit


def count_values(text: bytes) -> int:
    """How many values a JSON text holds at most.

    All but the outermost follow a comma or an opening bracket outside strings; an empty object or
    array counts as if it held one.
    """
    unescaped = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    characters = np.frombuffer(unescaped, dtype=np.uint8)
    # The parity of the quotes so far, which 8 bits keep.
    inside = np.cumsum(characters == ord('"'), dtype=np.uint8) & 1
    opens = (characters == ord(",")) | (characters == ord("[")) | (characters == ord("{"))
    return 1 + int(np.count_nonzero(opens & (inside == 0)))
