"""Which parts of a row of slots are free."""

from bisect import bisect_left, insort


class FreeRanges:
    """Free slots as maximal ranges ``[start, end)``; neighbours are merged at once.

    The smallest range that is long enough is handed out, so that long ones stay whole. Ranges are
    found by their ends and by their length: years of heads of all sizes coming and going leave
    thousands of them, which nobody walks through.
    """

    def __init__(self) -> None:
        self.end_of: dict[int, int] = {}
        self.start_of: dict[int, int] = {}
        self.by_length: dict[int, dict[int, None]] = {}
        self.lengths: list[int] = []  # those that occur, ascending

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """All of them, ascending."""
        return sorted(self.end_of.items())

    def fits(self, count: int) -> bool:
        """Whether `count` slots in a row are free."""
        return bool(self.lengths) and self.lengths[-1] >= count

    def take(self, count: int) -> int:
        """Take `count` slots in a row that are free; there must be some."""
        assert self.fits(count), f"no {count} slots in a row are free"
        length = self.lengths[bisect_left(self.lengths, count)]
        start = next(iter(self.by_length[length]))
        self.drop(start)
        if length > count:
            self.add(start + count, start + length)
        return start

    def give(self, start: int, end: int) -> None:
        """Free slots that are taken, or new."""
        if end in self.end_of:
            end = self.drop(end)
        if start in self.start_of:
            before = self.start_of[start]
            self.drop(before)
            start = before
        self.add(start, end)

    def tail(self, capacity: int) -> int:
        """Where the free slots at the end of `capacity` slots begin."""
        return self.start_of.get(capacity, capacity)

    def add(self, start: int, end: int) -> None:
        """Note a range that touches no other."""
        length = end - start
        if length not in self.by_length:
            self.by_length[length] = {}
            insort(self.lengths, length)
        self.by_length[length][start] = None
        self.end_of[start] = end
        self.start_of[end] = start

    def drop(self, start: int) -> int:
        """Forget a range, and say where it ended."""
        end = self.end_of.pop(start)
        del self.start_of[end]
        length = end - start
        del self.by_length[length][start]
        if not self.by_length[length]:
            del self.by_length[length]
            self.lengths.pop(bisect_left(self.lengths, length))
        return end
