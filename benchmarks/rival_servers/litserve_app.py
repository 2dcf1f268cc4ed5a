"""`python -m benchmarks.rival_servers.litserve_app PORT`: the classifier behind LitServe."""

import os
import sys
from pathlib import Path

from litserve import LitAPI, LitServer  # type: ignore[import-not-found]

from benchmarks.rival_servers.classifier import MAX_ROWS, MAX_WAIT_MS, VARIABLE, Classifier


class ClassifierApi(LitAPI):  # type: ignore[misc]
    """`POST /predict` with `{"text": ...}`; LitServe makes the batches."""

    def setup(self, device: str) -> None:
        """Load the model, in the process that runs it."""
        self.classify = Classifier(Path(os.environ[VARIABLE]))

    def decode_request(self, request: dict[str, str]) -> str:
        """The text of a request."""
        return request["text"]

    def predict(self, texts: list[str]) -> list[dict[str, float]]:
        """The answers of a batch."""
        return self.classify(texts)

    def encode_response(self, output: dict[str, float]) -> dict[str, float]:
        """An answer is a reply as it is."""
        return output


def main() -> None:
    """Serve until told to stop."""
    api = ClassifierApi(max_batch_size=MAX_ROWS, batch_timeout=MAX_WAIT_MS / 1000)
    server = LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(
        host="127.0.0.1",
        port=int(sys.argv[1]),
        num_api_servers=1,
        generate_client_file=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
