"""The backbone that tests claim to have where none is loaded."""

from pathlib import Path

from capsules.backbones.base import BackboneInfo

INFO = BackboneInfo(
    id="tests/none",
    family="encoder-only",
    architecture="bert",
    hidden_size=8,
    num_layers=2,
    parameters=1000,
    vocab_size=100,
    max_tokens=30,
    fingerprint="a" * 64,
    path=Path("nowhere"),
)
