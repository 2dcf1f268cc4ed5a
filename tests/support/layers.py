"""Looks at the layers of a backbone while it runs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def layer_outputs(layers: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Copies of what each layer puts out, since the next one overwrites it."""
    seen: list[Tensor] = []

    def keep(_layer: nn.Module, _inputs: object, output: Tensor | tuple[Tensor, ...]) -> None:
        seen.append((output if isinstance(output, Tensor) else output[0]).detach().clone())

    handles = [layer.register_forward_hook(keep) for layer in layers]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
