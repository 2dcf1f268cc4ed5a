"""Pure tensor maths of the method; no state, no modules, no I/O.

Symbols: B rows, S positions (capsule slots first, then tokens), K slots, D hidden size, L labels.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which means and sums are taken: float32, or wider where the input is wider."""
    return torch.promote_types(dtype, torch.float32)


def pool_weights(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights that turn a sum over positions into the mean over the marked ones.

    Args:
        mask: [B, S] bool, True on the positions that count; at least one a row.
        dtype: dtype of the hidden states that will be pooled.

    Returns:
        [B, S] in the accumulation dtype: 1 / (number of marked positions) where marked, else 0.
    """
    weights = mask.to(accumulation_dtype(dtype))
    return weights / weights.sum(dim=1, keepdim=True)


def masked_mean(hidden: Tensor, weights: Tensor) -> Tensor:
    """Mean over the marked positions, ``Mean(S (+) H)`` of the method.

    Args:
        hidden: [B, S, D] hidden states.
        weights: [B, S] from :func:`pool_weights`.

    Returns:
        [B, D] in the accumulation dtype (never half precision).
    """
    return torch.bmm(weights.unsqueeze(1), hidden.to(weights.dtype)).squeeze(1)


def shifted_means(hidden: Tensor, weights: Tensor, kernel: int) -> Tensor:
    """Means over what stands at each offset from the marked positions.

    They are all that the mean of a depthwise convolution needs, since both are linear:
    ``Mean_t(b + sum_j w_j x_{t+j-h}) = b + sum_j w_j Mean_t(x_{t+j-h})`` with ``h = kernel // 2``.

    Args:
        hidden: [B, S, D] hidden states.
        weights: [B, S] from :func:`pool_weights`; its marked positions lie side by side, and what
            is beyond them counts as zero.
        kernel: K, odd.

    Returns:
        [B, K, D] in the accumulation dtype; entry j belongs to the offset ``j - h``.
    """
    half = kernel // 2
    windows = pad(weights, (half, half)).unfold(1, weights.shape[1], 1).flip(1)
    inside = (weights > 0).unsqueeze(1)
    return torch.bmm(windows * inside, hidden.to(weights.dtype))


def replace_slots(hidden: Tensor, prompts: Tensor) -> Tensor:
    """Put the capsule tokens of one layer in front of the text's hidden states.

    Under autograd a new tensor is returned. Without it the slots are overwritten in place, which
    saves copying the whole sequence at each layer.

    Args:
        hidden: [B, S, D] input of a layer, slots first.
        prompts: [B, K, D] the new capsule tokens, any float dtype.

    Returns:
        [B, S, D] with ``[:, :K]`` replaced.
    """
    slots = prompts.shape[1]
    prompts = prompts.to(hidden.dtype)
    if torch.is_grad_enabled():
        return torch.cat((prompts, hidden[:, slots:]), dim=1)
    hidden[:, :slots] = prompts
    return hidden


def linear_head(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Scores of every label, each row with its own head: ``logits = W f (+ b)``.

    Args:
        features: [B, D] what the family reads from the last layer.
        weight: [B, L, D] each row's head.
        bias: [B, L], or None for families whose head has none.

    Returns:
        [B, L] logits in the accumulation dtype.
    """
    weight = weight.to(accumulation_dtype(weight.dtype))
    logits = torch.bmm(weight, features.to(weight.dtype).unsqueeze(2)).squeeze(2)
    return logits if bias is None else logits + bias.to(logits.dtype)
