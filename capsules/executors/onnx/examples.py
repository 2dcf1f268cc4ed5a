"""Batches that show a graph everything it has to take."""

from collections.abc import Sequence

import torch
from torch import Tensor

from capsules.backbones.base import Backbone
from capsules.core import Geometry, Reading, TokenBatch
from capsules.injection import PromptGroup, Prompts
from capsules.variants.registry import VARIANTS, variant

Example = tuple[TokenBatch, Prompts, Reading | None]
"""What an executor is given for one batch, on the CPU."""

DEVIATION = 0.1
"""Of the tensors of random capsules: about what trained ones come to."""


def example(backbone: Backbone, lengths: Sequence[int], *, shift: int, seed: int) -> Example:
    """A batch of random texts and capsules: rows of every variant, and one without a capsule.

    Args:
        backbone: for its sizes.
        lengths: tokens of the texts, in turn.
        shift: 0 or 1; two batches that differ in it have nothing in common but the sizes of the
            backbone. With 0 all capsules enter every layer, with 1 some begin late or pass over
            layers.
        seed: of the texts and tensors.
    """
    generator = torch.Generator().manual_seed(seed)
    layers = len(backbone.layers)
    geometry = Geometry(num_layers=layers, hidden_size=backbone.hidden_size)
    choices = [tuple(range(layers))]
    if shift:
        choices += [tuple(range(layers // 2, layers)), tuple(range(0, layers, 2))]
    groups = []
    rows = 0
    for index, name in enumerate(VARIANTS):
        form, length = variant(name), 1 + (index + shift) % 2
        chosen = choices[(index + shift) % len(choices)]
        members = torch.arange(rows, rows + 2 + shift)
        rows += len(members)
        groups.append(
            PromptGroup(
                variant=form,
                length=length,
                layers=chosen,
                tensors=drawn(form.shapes(geometry, len(chosen), length), len(members), generator),
                rows=members,
            )
        )
    rows += 1  # one without a capsule
    sizes = torch.tensor([lengths[row % len(lengths)] for row in range(rows)])
    mask = torch.arange(int(sizes.max())) < sizes[:, None]
    ids = torch.randint(0, backbone.vocabulary, mask.shape, generator=generator)
    tokens = TokenBatch(input_ids=ids * mask, attention_mask=mask)
    return tokens, Prompts(tuple(groups)), words(backbone, rows, shift)


def drawn(
    shapes: dict[str, tuple[int, ...]], rows: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Random tensors of some rows' capsules."""
    return {
        name: torch.randn((rows, *shape), generator=generator) * DEVIATION
        for name, shape in shapes.items()
    }


def words(backbone: Backbone, rows: int, shift: int) -> Reading | None:
    """What to read of a backbone that answers in words: of every row two paths, parting late."""
    if backbone.family != "encoder-decoder":
        return None
    paths = torch.arange(2 * rows)
    steps = 1 + shift
    return Reading(
        rows=paths // 2,
        prefixes=(paths[:, None] % 7 + torch.arange(steps) + 3),
        paths=torch.cat((paths, paths[: rows + shift])),
        steps=torch.cat((torch.zeros_like(paths), torch.full((rows + shift,), steps))),
    )
