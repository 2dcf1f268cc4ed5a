"""Runs one capsule over many texts."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from capsules.artefact.file import Capsule
from capsules.backbones.base import LoadedBackbone
from capsules.core import Encoding, Example, Prediction, TokenBatch
from capsules.evaluation.metrics import Report
from capsules.executors.base import Executor
from capsules.memory import empty_cache, is_out_of_memory
from capsules.model import pad, shared_prompts
from capsules.scoring import scorer
from capsules.template import Template
from capsules.variants.registry import variant

BATCH_ROWS = 64
Progress = Callable[[int, int], None]


def ignore_progress(done: int, total: int) -> None:
    """Report to nobody."""


def in_batches(
    encodings: Sequence[Encoding],
    forward: Callable[[TokenBatch], Tensor],
    *,
    pad_id: int,
    device: torch.device,
    progress: Progress = ignore_progress,
) -> Tensor:
    """What `forward` gives for every text, in batches of similar length.

    Where there is not enough memory for a batch, that one and all others, which are of longer
    texts, have half as many rows.

    Args:
        encodings: n tokenised texts.
        forward: takes a batch of B of them and gives [B, ...].
        pad_id: fills up short rows.
        device: where `forward` wants its batches.
        progress: told how many of the n are done.

    Returns:
        [n, ...] in the order of `encodings`.

    Raises:
        RuntimeError: torch's own, where there is not enough memory for a single text.
    """
    order = sorted(range(len(encodings)), key=lambda row: len(encodings[row].input_ids))
    parts: list[Tensor] = []
    most, done = BATCH_ROWS, 0
    while done < len(order):
        batch = [encodings[row] for row in order[done : done + most]]
        try:
            parts.append(forward(pad(batch, pad_id).to(device)))
        except RuntimeError as error:
            if len(batch) == 1 or not is_out_of_memory(error):
                raise
            most = len(batch) // 2
        else:
            done += len(batch)
            progress(done, len(order))
            continue
        # Only here is the failed batch's memory free again.
        empty_cache()
    joined = torch.cat(parts)
    restored = torch.empty_like(joined)
    restored[torch.tensor(order, device=joined.device)] = joined
    return restored


def probabilities(
    loaded: LoadedBackbone,
    executor: Executor,
    encodings: Sequence[Encoding],
    capsule: Capsule,
    *,
    progress: Progress = ignore_progress,
) -> Tensor:
    """Probabilities of every label for every text, [n, L], float32, on the CPU; see `in_batches`.

    Args:
        loaded: the backbone.
        executor: runs it.
        encodings: n tokenised texts.
        capsule: answers them.
        progress: told how many of the n are done.
    """
    manifest = capsule.manifest
    tensors = {name: value.to(executor.device) for name, value in capsule.tensors.items()}
    form, scores = variant(manifest.variant), scorer(loaded, tensors, manifest.words)

    def forward(tokens: TokenBatch) -> Tensor:
        rows = len(tokens)
        prompts = shared_prompts(form, manifest.length, manifest.injected, tensors, rows)
        return scores.scores(executor.features(tokens, prompts, scores.reading(rows)))

    found = in_batches(
        encodings,
        forward,
        pad_id=loaded.tokeniser.pad_id,
        device=executor.device,
        progress=progress,
    )
    return found.softmax(dim=1).cpu()


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
    probs = probabilities(
        loaded, executor, encode(loaded, capsule, inputs), capsule, progress=progress
    )
    labels = capsule.manifest.labels
    winners = probs.argmax(dim=1).tolist()
    return [
        Prediction(label=labels[winner], score=row[winner], probs=tuple(row))
        for winner, row in zip(winners, probs.tolist(), strict=True)
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
