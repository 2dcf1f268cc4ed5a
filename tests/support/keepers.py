"""A keeper of checkpoints that is no file."""


class InMemoryKeeper:
    """Keeps the last checkpoint; its run's options cannot be changed."""

    name = "What was kept"
    to_change = ""

    def __init__(self, to_start_over: str) -> None:
        self.to_start_over = to_start_over
        self.data: bytes | None = None

    def load(self) -> bytes | None:
        return self.data

    def save(self, data: bytes) -> None:
        self.data = data
