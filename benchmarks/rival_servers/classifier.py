"""What LitServe and mosec serve: a model with a classification head, one padded batch at a time."""

from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

VARIABLE = "RIVAL_MODEL"
"""Environment variable that names the model's folder."""

MAX_ROWS = 32
MAX_WAIT_MS = 5


class Classifier:
    """Scores texts with a model from a local folder, on the CPU."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        self.labels = [self.model.config.id2label[index] for index in range(self.model.num_labels)]

    @torch.inference_mode()
    def __call__(self, texts: list[str]) -> list[dict[str, float]]:
        """The probability of each label, for each text."""
        tokens = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        rows = self.model(**tokens).logits.softmax(-1).tolist()
        return [dict(zip(self.labels, row, strict=True)) for row in rows]
