import os

import pytest

from benchmarks.children import child


class Side:
    def __init__(self, start):
        self.count = start

    def add(self, number):
        self.count += number
        return self.count, os.getpid()

    def fail(self):
        raise ValueError("no luck")


def test_side_lives_in_another_process_and_ends_with_it():
    with child(Side, start=2) as side:
        assert side.add(3)[0] == 5
        count, process = side.add(1)
        assert (count, process != os.getpid()) == (6, True)
        with pytest.raises(ValueError, match="no luck"):
            side.fail()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
