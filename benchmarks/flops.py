"""How much an encoder computes: the useful part, on real positions.

For N layers, width D and inner width F, on rows of s positions each::

    FLOPs = N (sum(s) (8 D^2 + 4 D F) + 4 D sum(s^2))
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.errors import WrongMachineError
from capsules.backbones.base import LoadedBackbone


@dataclass(frozen=True, slots=True)
class Work:
    """What the layers of an encoder compute.

    Attributes:
        linear: FLOPs of a position in the products with weights, of all layers.
        attention: FLOPs of a pair of positions, likewise.
    """

    linear: int
    attention: int

    def of(self, positions: Sequence[int]) -> int:
        """FLOPs of rows of so many positions each."""
        return self.linear * sum(positions) + self.attention * sum(s**2 for s in positions)


def work_of(loaded: LoadedBackbone) -> Work:
    """The work of a backbone.

    Raises:
        WrongMachineError: it is no encoder on a CPU, for which it is not counted.
    """
    info = loaded.info
    if info.family != "encoder-only" or loaded.backbone.device.type != "cpu":
        raise WrongMachineError("the limit is counted for encoders on a CPU only.")
    width, inner = info.hidden_size, inner_width(loaded)
    return Work(
        linear=info.num_layers * (8 * width**2 + 4 * width * inner),
        attention=info.num_layers * 4 * width,
    )


def inner_width(loaded: LoadedBackbone) -> int:
    """F, the width between the two products of a layer's feed-forward part."""
    width: int = loaded.backbone.model.config.intermediate_size
    return width
