"""Runs one capsule over many texts."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from capsules.artefact.file import Capsule
from capsules.backbones.base import LoadedBackbone
from capsules.core import Encoding, Example, Prediction
from capsules.evaluation.metrics import Report
from capsules.executors.base import Executor
from capsules.injection import Prompts
from capsules.model import pad, shared_prompts
from capsules.template import Template
from capsules.variants.registry import variant

BATCH_ROWS = 64
Progress = Callable[[int, int], None]


def ignore_progress(done: int, total: int) -> None:
    """Report to nobody."""


def features(
    executor: Executor,
    encodings: Sequence[Encoding],
    prompts: Callable[[int], Prompts],
    *,
    pad_id: int,
    progress: Progress = ignore_progress,
) -> Tensor:
    """What the head reads, for every text, in batches of similar length.

    Args:
        executor: runs the backbone.
        encodings: n tokenised texts.
        prompts: gives the capsules of a batch of so many rows.
        pad_id: fills up short rows.
        progress: told how many of the n are done.

    Returns:
        [n, D] on the CPU, in the order of `encodings`.
    """
    order = sorted(range(len(encodings)), key=lambda row: len(encodings[row].input_ids))
    parts: list[Tensor] = []
    for start in range(0, len(order), BATCH_ROWS):
        rows = order[start : start + BATCH_ROWS]
        tokens = pad([encodings[row] for row in rows], pad_id)
        parts.append(executor.features(tokens, prompts(len(rows))).cpu())
        progress(start + len(rows), len(order))
    joined = torch.cat(parts)
    restored = torch.empty_like(joined)
    restored[torch.tensor(order)] = joined
    return restored


def probabilities(
    executor: Executor,
    encodings: Sequence[Encoding],
    capsule: Capsule,
    *,
    pad_id: int,
    progress: Progress = ignore_progress,
) -> Tensor:
    """Softmax scores of every label for every text: [n, L], float32, on the CPU.

    Args:
        executor: runs the backbone.
        encodings: n tokenised texts.
        capsule: answers them.
        pad_id: fills up short rows.
        progress: told how many of the n are done.
    """
    manifest = capsule.manifest
    form = variant(manifest.variant)
    slots = form.slots(manifest.length)
    tensors = {name: value.to(executor.device) for name, value in capsule.tensors.items()}
    pooled = features(
        executor,
        encodings,
        lambda rows: shared_prompts(form, slots, tensors, rows),
        pad_id=pad_id,
        progress=progress,
    )
    logits = functional.linear(
        pooled, capsule.tensors["head.weight"], capsule.tensors.get("head.bias")
    )
    return logits.softmax(dim=1)


def encode(
    loaded: LoadedBackbone, capsule: Capsule, inputs: Sequence[Mapping[str, str]]
) -> list[Encoding]:
    """Tokenise named inputs as the capsule's manifest says.

    Raises:
        InputError: inputs do not fit the template, or are empty.
    """
    manifest = capsule.manifest
    template = Template(manifest.template)
    max_tokens = manifest.max_length - variant(manifest.variant).slots(manifest.length)
    return loaded.tokeniser.encode([template.render(one) for one in inputs], max_tokens)


def predict(
    loaded: LoadedBackbone,
    executor: Executor,
    capsule: Capsule,
    inputs: Sequence[Mapping[str, str]],
    *,
    progress: Progress = ignore_progress,
) -> list[Prediction]:
    """Classify named inputs.

    Raises:
        InputError: inputs do not fit the template, or are empty.
    """
    if not inputs:
        return []
    scores = probabilities(
        executor,
        encode(loaded, capsule, inputs),
        capsule,
        pad_id=loaded.tokeniser.pad_id,
        progress=progress,
    )
    labels = capsule.manifest.labels
    winners = scores.argmax(dim=1).tolist()
    return [
        Prediction(label=labels[winner], score=row[winner], probs=tuple(row))
        for winner, row in zip(winners, scores.tolist(), strict=True)
    ]


def evaluate(
    loaded: LoadedBackbone,
    executor: Executor,
    capsule: Capsule,
    examples: Sequence[Example],
    *,
    progress: Progress = ignore_progress,
) -> Report:
    """Accuracy, F1 and confusion of a capsule on labelled rows.

    Raises:
        InputError: inputs do not fit the template, or are empty.
    """
    predictions = predict(
        loaded, executor, capsule, [example.inputs for example in examples], progress=progress
    )
    return Report.from_labels(
        [example.label for example in examples],
        [prediction.label for prediction in predictions],
        labels=capsule.manifest.labels,
    )
