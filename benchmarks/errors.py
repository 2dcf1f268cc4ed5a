"""What goes wrong in a benchmark."""


class BenchmarkError(Exception):
    """A benchmark cannot run here, or what it measured cannot be trusted; the message says why."""
