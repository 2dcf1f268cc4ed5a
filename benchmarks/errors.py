"""What goes wrong in a benchmark."""


class BenchmarkError(Exception):
    """A benchmark cannot run here, or what it measured cannot be trusted; the message says why."""


class WrongMachineError(BenchmarkError):
    """A benchmark is for other machines than this one; nothing is wrong with either."""
