"""The means of a layer's input that variants build capsule tokens from."""

from functools import cached_property

from torch import Tensor

from capsules.functional import masked_mean, shifted_means


class Pool:
    """Means over the counted positions of a layer's input, taken when a variant asks for them.

    Rows of many variants may stand in one batch: each sees its own, and the mean, which most of
    them need, is computed once for all.
    """

    def __init__(
        self,
        hidden: Tensor,
        weights: Tensor,
        *,
        rows: Tensor | None = None,
        whole: "Pool | None" = None,
    ) -> None:
        """Look at a layer's input.

        Args:
            hidden: [B, S, D] before injection.
            weights: [B, S] that average the positions the method averages at this layer.
            rows: [b] int64, those to see; None sees all.
            whole: sees all rows of the same input; with `rows` only.
        """
        self.hidden = hidden
        self.weights = weights
        self.rows = rows
        self.whole = whole

    def of(self, rows: Tensor) -> "Pool":
        """The pool that sees only `rows`, [b] int64."""
        return Pool(self.hidden, self.weights, rows=rows, whole=self)

    @cached_property
    def mean(self) -> Tensor:
        """``Mean(S_^{i-1} (+) H^{i-1})``, [b, D] in the accumulation dtype."""
        if self.whole is not None:
            return self.whole.mean[self.rows]
        return masked_mean(self.hidden, self.weights)

    def shifted_means(self, kernel: int) -> Tensor:
        """Means at each offset of a convolution, [b, kernel, D] in the accumulation dtype."""
        if self.rows is None:
            return shifted_means(self.hidden, self.weights, kernel)
        return shifted_means(self.hidden[self.rows], self.weights[self.rows], kernel)
