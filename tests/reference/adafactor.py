"""Adafactor (Shazeer and Stern, 2018) without relative steps, first moment or parameter scaling."""

import numpy as np

from tests.reference.maths import Array

FLOOR = 1e-30


class Adafactor:
    """The second moment of one tensor, and the steps it makes for it.

    Tensors of two dimensions and more keep a moment for each row and each column of their last two
    dimensions; vectors keep all of them.
    """

    def __init__(self) -> None:
        self.time = 0
        self.rows: Array = np.zeros(())
        self.columns: Array = np.zeros(())

    def step(self, value: Array, gradient: Array, rate: float) -> Array:
        """The tensor after one step of learning rate `rate`."""
        self.time += 1
        decay = 1 - self.time**-0.8
        square = gradient**2 + FLOOR
        if gradient.ndim == 1:
            self.rows = decay * self.rows + (1 - decay) * square
            moment = self.rows
        else:
            self.rows = decay * self.rows + (1 - decay) * square.mean(axis=-1)
            self.columns = decay * self.columns + (1 - decay) * square.mean(axis=-2)
            share = self.rows / self.rows.mean(axis=-1, keepdims=True)
            moment = share[..., :, None] * self.columns[..., None, :]
        update = gradient / np.sqrt(moment)
        root_mean_square = np.sqrt((update**2).mean())
        result: Array = value - rate * update / max(1.0, root_mean_square)
        return result
