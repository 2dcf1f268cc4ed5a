"""Gemma 3 text: windows of its own, and rotary angles that depend on how a layer attends."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from capsules.backbones.decoder import Decoder
from capsules.backbones.source import BackboneSource
from capsules.errors import BackboneError, BackboneFault


class Gemma(Decoder):
    """As :class:`Decoder`; the embedding already scales its words by ``sqrt(D)``."""

    @classmethod
    def load_model(cls, source: BackboneSource, dtype: torch.dtype) -> PreTrainedModel:
        """Load a causal model.

        Raises:
            BackboneError: it attends in both directions, as embedding models do.
        """
        model = super().load_model(source, dtype)
        if model.config.use_bidirectional_attention:
            raise BackboneError(
                f"The backbone {source.id!r} is a Gemma that attends in both directions, whose "
                "last token decides nothing; choose a causal one, such as google/gemma-3-270m.",
                code=BackboneFault.UNSUPPORTED_FAMILY,
            )
        return model

    def rotary(self, hidden: Tensor, positions: Tensor, kind: str) -> tuple[Tensor, Tensor]:
        """Windows and full attention turn at different rates."""
        angles: tuple[Tensor, Tensor] = self.decoder.rotary_emb(hidden, positions, kind)
        return angles
