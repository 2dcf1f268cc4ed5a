"""What the model runs before anyone waits for it."""

from collections.abc import Iterator

import torch

from capsules.backbones.base import BackboneInfo
from capsules.core import TokenBatch
from capsules.executors.base import Executor
from capsules.injection import PromptGroup, Prompts
from capsules.variants.registry import variant
from service.engine.batcher import Limits

WARM_UP_TOKENS = (16, 128)


def warm_up(executor: Executor, info: BackboneInfo, limits: Limits, pad_id: int) -> None:
    """Run the model once at each of a few sizes, so that no request pays for first times.

    Args:
        executor: the model.
        info: its backbone.
        limits: of the batches it will run.
        pad_id: a token id.
    """
    for rows, tokens in warm_up_shapes(limits, info.max_tokens):
        batch = TokenBatch(
            input_ids=torch.full((rows, tokens), pad_id, dtype=torch.int64),
            attention_mask=torch.ones(rows, tokens, dtype=torch.bool),
        )
        executor.features(batch, blank_prompts(info, rows, executor.device))


def warm_up_shapes(limits: Limits, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Rows and tokens of the warm-up batches: one row and as many as a batch may hold."""
    for wanted in WARM_UP_TOKENS:
        tokens = min(wanted, max_tokens)
        yield 1, tokens
        yield max(1, min(limits.max_rows, limits.max_tokens // (tokens + 1))), tokens


def blank_prompts(info: BackboneInfo, rows: int, device: torch.device) -> Prompts:
    """A capsule of zeros for every row."""
    addition = variant("addition")
    layers = tuple(range(info.num_layers))
    tensors = {
        name: torch.zeros((rows, *shape), device=device)
        for name, shape in addition.shapes(info.geometry, len(layers), 1).items()
    }
    return Prompts((PromptGroup(addition, 1, layers, tensors),))
