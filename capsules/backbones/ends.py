"""What is read from the end of a pass, wherever the rows of the batch lie in it."""

from typing import Protocol

import torch
from torch import Tensor

from capsules.functional import accumulation_dtype, masked_mean, pool_weights


class Ends(Protocol):
    """The rows of a batch after the last layer."""

    def mean(self, hidden: Tensor) -> Tensor:
        """The mean over the real tokens and used slots of each row, [B, D].

        Args:
            hidden: what :meth:`capsules.backbones.base.Backbone.run` gave.
        """
        ...

    def last(self, hidden: Tensor) -> Tensor:
        """The state of each row's last real token, [B, D]."""
        ...

    def rows(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Every row side by side, [B, S, D], and which of its places are real, [B, S] bool."""
        ...


class PaddedEnds:
    """Rows that lie side by side already, filled up to the longest."""

    def __init__(self, mask: Tensor) -> None:
        """Prepare to read.

        Args:
            mask: [B, S] bool, True on real tokens and used slots.
        """
        self.mask = mask

    def mean(self, hidden: Tensor) -> Tensor:
        """See :class:`Ends`."""
        return masked_mean(hidden, pool_weights(self.mask, hidden.dtype))

    def last(self, hidden: Tensor) -> Tensor:
        """See :class:`Ends`."""
        places = torch.arange(self.mask.shape[1], device=self.mask.device)
        last = (self.mask * places).argmax(dim=1)
        rows = torch.arange(len(hidden), device=hidden.device)
        return hidden[rows, last].to(accumulation_dtype(hidden.dtype))

    def rows(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`Ends`."""
        return hidden, self.mask
