"""`python -m benchmarks.rival_servers.export_onnx FOLDER`: adds the graph Infinity's optimum engine loads."""

import sys
from pathlib import Path

from optimum.onnxruntime import ORTModelForSequenceClassification  # type: ignore[import-not-found]


def main() -> None:
    """Write the folder's model as `model.onnx` beside it."""
    folder = Path(sys.argv[1])
    model = ORTModelForSequenceClassification.from_pretrained(folder, export=True)
    model.save_pretrained(folder)


if __name__ == "__main__":
    main()
