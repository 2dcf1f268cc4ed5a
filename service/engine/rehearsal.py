"""Refuses a training run for what its capsule would be refused for once it is trained."""

import json
from collections.abc import Sequence

from capsules.artefact.checks import check_backbone, check_manifest, expected_shapes
from capsules.artefact.file import MAX_HEADER_BYTES
from capsules.artefact.manifest import MAX_GOLDEN, MAX_GOLDEN_CHARACTERS, Manifest
from capsules.artefact.reference import reference
from capsules.backbones.base import LoadedBackbone
from capsules.errors import ArtefactError, ArtefactFault
from capsules.scoring import label_trie
from capsules.training.config import DEFAULT_LEARNING_RATE, TrainingConfig
from capsules.training.finish import GOLDEN_DIGITS, draft
from capsules.training.run import check_max_length, usual_max_length
from capsules.training.trainable import nothing_to_learn
from capsules.variants.registry import variant

GOLDEN_BYTES = MAX_GOLDEN * MAX_GOLDEN_CHARACTERS * 4
"""The most that the texts of golden examples take, for characters of four bytes."""

PROBABILITY_BYTES = GOLDEN_DIGITS + len("0.,")


class Rehearsal:
    """The checks of a training run that need its backbone and no row.

    The backbone may be in any dtype: the one that will be trained on is loaded in float32.

    Args:
        loaded: the backbone that the capsule is to be served on.
    """

    def __init__(self, loaded: LoadedBackbone) -> None:
        self.loaded = loaded

    @property
    def learning_rate(self) -> float:
        """The learning rate of a run that asks for none."""
        return DEFAULT_LEARNING_RATE[self.loaded.info.family]

    def max_length(self, name: str, length: int) -> int:
        """The `max_length` of a run that asks for none: the usual, or what the backbone takes.

        Args:
            name: of the variant.
            length: capsule tokens per layer.
        """
        return usual_max_length(self.loaded.info, name, length)

    def check(self, config: TrainingConfig, labels: Sequence[str]) -> None:
        """Refuse options that would come to nothing.

        Args:
            config: the options.
            labels: in head order.

        Raises:
            OptionError: an option does not fit the backbone or the labels.
            ArtefactError: no file could hold the capsule, or its label words cannot be told apart.
            ValidationError: the options cannot be in a manifest.
        """
        manifest = draft(self.loaded, config, labels)
        check_manifest(manifest)
        check_max_length(
            self.loaded, config.max_length, variant(manifest.variant).slots(config.length)
        )
        check_backbone(manifest, reference(self.loaded.info), self.loaded.info.max_tokens)
        if not expected_shapes(manifest):
            raise nothing_to_learn(config)
        if manifest.words is not None:
            label_trie(self.loaded, manifest.words)
        check_header(manifest)


def check_header(manifest: Manifest) -> None:
    """Refuse labels that are too much for the header of a capsule file, whatever the golden rows.

    Raises:
        ArtefactError: they are.
    """
    text = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False)
    # The manifest is a string within the header's JSON, which escapes its quotes once more.
    quoted = len(json.dumps(text, ensure_ascii=False).encode())
    golden = GOLDEN_BYTES + MAX_GOLDEN * len(manifest.labels) * PROBABILITY_BYTES
    if quoted + golden > MAX_HEADER_BYTES:
        raise ArtefactError(
            f"The {len(manifest.labels)} labels take too many bytes for the header of a capsule "
            f"file, which has {MAX_HEADER_BYTES}; shorten them.",
            code=ArtefactFault.HEADER_TOO_LARGE,
            field="labels",
        )
