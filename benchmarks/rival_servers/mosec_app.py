"""`python -m benchmarks.rival_servers.mosec_app --port PORT`: the classifier behind mosec.

mosec reads the command line itself.
"""

import os
from pathlib import Path

from mosec import Server, Worker  # type: ignore[import-not-found]

from benchmarks.rival_servers.classifier import MAX_ROWS, MAX_WAIT_MS, VARIABLE, Classifier


class ClassifierWorker(Worker):  # type: ignore[misc]
    """`POST /inference` with `{"text": ...}`; mosec makes the batches."""

    def __init__(self) -> None:
        super().__init__()
        self.classify = Classifier(Path(os.environ[VARIABLE]))

    def forward(self, data: list[dict[str, str]]) -> list[dict[str, float]]:
        """The answers of a batch."""
        return self.classify([one["text"] for one in data])


def main() -> None:
    """Serve until told to stop."""
    server = Server()
    server.append_worker(
        ClassifierWorker, num=1, max_batch_size=MAX_ROWS, max_wait_time=MAX_WAIT_MS
    )
    server.run()


if __name__ == "__main__":
    main()
