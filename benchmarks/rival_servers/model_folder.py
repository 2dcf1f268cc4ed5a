"""The model that rivals serve: the backbone with one classification head, as a local folder."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification
from transformers.utils import logging

from capsules.backbones.base import BackboneInfo

LABELS = 6
SEED = 0
GRAPH = "model.onnx"
TOKENISER_FILES = (
    "vocab.txt",
    "tokenizer.json",
    "special_tokens_map.json",
)
TOKENISER_CONFIG = "tokenizer_config.json"


def write_model(info: BackboneInfo, folder: Path) -> None:
    """Write the backbone with a random head of :data:`LABELS` labels, always the same one.

    The tokeniser's files are copied as they are, but for the longest text, since older releases of
    transformers cannot read what newer ones write.

    Args:
        info: the backbone, a local folder.
        folder: where to.
    """
    with torch.random.fork_rng(), quiet():
        torch.manual_seed(SEED)
        model = AutoModelForSequenceClassification.from_pretrained(info.path, num_labels=LABELS)
    model.save_pretrained(folder)
    for name in TOKENISER_FILES:
        if (info.path / name).exists():
            shutil.copy(info.path / name, folder / name)
    config = json.loads((info.path / TOKENISER_CONFIG).read_text(encoding="utf-8"))
    config["model_max_length"] = info.max_tokens
    (folder / TOKENISER_CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from telling that the head is random, which it is meant to be."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
