"""What the tokens of a capsule are made of, whatever its variant."""

from dataclasses import dataclass

import torch
from torch import Tensor

from capsules.variants.pool import Pool

KERNEL = 5
"""Taps of a convolution: one number for all, so that rows of a batch are computed together."""

RANK = 8
"""Of a low-rank map, likewise."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Capsule tokens as a function of a layer's input x, linear in it.

    ``S_j = c_j + m_j Mean(x) + sum_k w_k * Mean_t(x_{t+k-h}) + U V Mean(x)`` for token j, with
    ``h = K // 2`` and zeros beyond the counted positions. A term that is None is left out.

    Tensors may have leading axes, such as rows and injections, the same for all of them.

    Attributes:
        constant: c, [..., slots, D]; None for zeros.
        shares: m, one of 0 and 1 for each slot.
        taps: w, [..., K, D], K = :data:`KERNEL`, which is odd.
        down: V, [..., R, D], R = :data:`RANK`.
        up: U, [..., D, R].
    """

    constant: Tensor | None
    shares: tuple[int, ...]
    taps: Tensor | None = None
    down: Tensor | None = None
    up: Tensor | None = None

    def tokens(self, pool: Pool) -> Tensor:
        """The tokens that enter one layer, [b, slots, D].

        Args:
            pool: means of b rows, which are the tensors' only leading axis.
        """
        tokens = self.constant
        if any(self.shares):
            mean = pool.mean.unsqueeze(1)
            if not all(self.shares):
                mean = mean * mean.new_tensor(self.shares).unsqueeze(1)
            elif tokens is None:
                mean = mean.expand(-1, len(self.shares), -1)
            tokens = mean if tokens is None else tokens + mean
        assert tokens is not None, "a capsule of nothing"
        if self.taps is not None:
            means = pool.shifted_means(self.taps.shape[1])
            tokens = tokens + torch.einsum("bkd,bkd->bd", self.taps, means).unsqueeze(1)
        if self.down is not None and self.up is not None:
            lowered = torch.bmm(self.down, pool.mean.unsqueeze(2))
            tokens = tokens + torch.bmm(self.up, lowered).transpose(1, 2)
        return tokens
