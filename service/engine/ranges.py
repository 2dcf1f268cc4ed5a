"""Which parts of a row of slots are free."""

from bisect import bisect_left


class FreeRanges:
    """Free slots as maximal ranges ``[start, end)``, ascending; neighbours are merged at once."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def fits(self, count: int) -> bool:
        """Whether `count` slots in a row are free."""
        return any(end - start >= count for start, end in self.ranges)

    def take(self, count: int) -> int:
        """Take the first `count` slots in a row that are free; there must be some."""
        for index, (start, end) in enumerate(self.ranges):
            if end - start > count:
                self.ranges[index] = (start + count, end)
                return start
            if end - start == count:
                del self.ranges[index]
                return start
        raise AssertionError(f"no {count} slots in a row are free")

    def give(self, start: int, end: int) -> None:
        """Free slots that are taken, or new."""
        index = bisect_left(self.ranges, (start, end))
        if index < len(self.ranges) and self.ranges[index][0] == end:
            end = self.ranges.pop(index)[1]
        if index and self.ranges[index - 1][1] == start:
            index -= 1
            start = self.ranges.pop(index)[0]
        self.ranges.insert(index, (start, end))

    def tail(self, capacity: int) -> int:
        """Where the free slots at the end of `capacity` slots begin."""
        return self.ranges[-1][0] if self.ranges and self.ranges[-1][1] == capacity else capacity
