"""What trained capsules do inside a backbone, with the instance term and without it."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from capsules.analysis.attention import attention
from capsules.artefact.file import Capsule
from capsules.backbones.base import LoadedBackbone
from capsules.core import Example, TokenBatch
from capsules.evaluation.runner import encode, in_batches, predict
from capsules.executors.torch import TorchExecutor
from capsules.model import InjectedBackbone, shared_prompts
from capsules.reproduce.record import Record
from capsules.variants.addition import Addition
from capsules.variants.pool import Pool

# Attention is taken text by text, without padding; more of them change its mean by little.
ATTENTION_TEXTS = 64
CAPSULE_VECTOR = "capsule"
DIGITS = 4


class LayerInsight(Record):
    """One injected layer.

    Attributes:
        layer: which one, from 1.
        attention: share of a token's attention that goes to the capsule; mean over texts, tokens
            and heads.
        attention_task_only: the same to the capsule that was trained without the mean.
        vector: norm of the learned vector p.
        vector_task_only: the same of the one that was trained without the mean.
        mean: norm of the mean of the layer's input, averaged over the texts first.
        spread: how far a text's mean lies from that average, as a root mean square.
    """

    layer: int
    attention: float
    attention_task_only: float
    vector: float
    vector_task_only: float
    mean: float
    spread: float


class Insight(Record):
    """One set, on its test rows.

    Attributes:
        task: the set.
        seed: of the two runs.
        backbone: what they are of.
        texts: test rows.
        attention_texts: the first of them, on which attention was taken.
        layers: the injected ones.
        accuracy: of the capsule.
        fixed_accuracy: of the same capsule where each text gets the average mean, not its own.
        same_answers: texts that are answered alike by both.
        task_only_accuracy: of the capsule that was trained without the mean.
    """

    task: str
    seed: int
    backbone: str
    texts: int
    attention_texts: int
    layers: tuple[LayerInsight, ...]
    accuracy: float
    fixed_accuracy: float
    same_answers: int
    task_only_accuracy: float


class Watched(Addition):
    """The published capsule, which also keeps the means that it adds.

    Attributes:
        means: [B, D] for each injected layer that ran, in order.
    """

    def __init__(self) -> None:
        self.means: list[Tensor] = []

    def prompt(self, tensors: Mapping[str, Tensor], pool: Pool, length: int) -> Tensor:
        """Keep the mean of the layer's input, and add it as ever."""
        self.means.append(pool.mean)
        return super().prompt(tensors, pool, length)


def inspect(
    loaded: LoadedBackbone,
    capsule: Capsule,
    task_only: Capsule,
    examples: Sequence[Example],
    *,
    task: str,
    seed: int,
) -> Insight:
    """Measure two capsules of one set that differ in the instance term alone.

    Args:
        loaded: the backbone, which nothing else may run meanwhile.
        capsule: of the variant `addition`.
        task_only: of the variant `task-only`, in the same layers.
        examples: test rows.
        task: the set.
        seed: of both.

    Raises:
        InputError: a row does not fit the template.
    """
    means = layer_means(loaded, capsule, examples)
    average = means.mean(dim=0)
    spread = (means - average).square().sum(dim=2).mean(dim=0).sqrt()
    own, fixed, plain = (
        answers(loaded, one, examples) for one in (capsule, with_fixed(capsule, average), task_only)
    )
    some = examples[:ATTENTION_TEXTS]
    columns = zip(
        capsule.manifest.injected,
        to_capsule(loaded, capsule, some),
        to_capsule(loaded, task_only, some),
        norms(capsule),
        norms(task_only),
        average.norm(dim=1).tolist(),
        spread.tolist(),
        strict=True,
    )
    return Insight(
        task=task,
        seed=seed,
        backbone=loaded.info.id,
        texts=len(examples),
        attention_texts=len(some),
        layers=tuple(
            LayerInsight(
                layer=index + 1,
                attention=round(seen, DIGITS),
                attention_task_only=round(seen_plain, DIGITS),
                vector=round(vector, DIGITS),
                vector_task_only=round(vector_plain, DIGITS),
                mean=round(mean, DIGITS),
                spread=round(apart, DIGITS),
            )
            for index, seen, seen_plain, vector, vector_plain, mean, apart in columns
        ),
        accuracy=accuracy(own, examples),
        fixed_accuracy=accuracy(fixed, examples),
        same_answers=sum(one == other for one, other in zip(own, fixed, strict=True)),
        task_only_accuracy=accuracy(plain, examples),
    )


def layer_means(loaded: LoadedBackbone, capsule: Capsule, examples: Sequence[Example]) -> Tensor:
    """[n, injections, D] the means that a capsule adds to its vectors, text by text."""
    manifest, device = capsule.manifest, loaded.backbone.device
    tensors = {name: tensor.to(device) for name, tensor in capsule.tensors.items()}

    def forward(tokens: TokenBatch) -> Tensor:
        form = Watched()
        prompts = shared_prompts(form, manifest.length, manifest.injected, tensors, len(tokens))
        InjectedBackbone(loaded.backbone).features(tokens, prompts)
        return torch.stack(form.means, dim=1)

    with torch.no_grad():
        return in_batches(
            encode(loaded, capsule, [one.inputs for one in examples]),
            forward,
            pad_id=loaded.tokeniser.pad_id,
            device=device,
        ).cpu()


def with_fixed(capsule: Capsule, average: Tensor) -> Capsule:
    """The same capsule with one mean for all texts: vectors ``p + average`` and no instance term.

    Args:
        capsule: of the variant `addition`.
        average: [injections, D].
    """
    vectors = capsule.tensors[CAPSULE_VECTOR] + average.unsqueeze(1)
    return Capsule(
        capsule.manifest.model_copy(update={"variant": "task-only"}),
        {**capsule.tensors, CAPSULE_VECTOR: vectors},
    )


def to_capsule(
    loaded: LoadedBackbone, capsule: Capsule, examples: Sequence[Example]
) -> list[float]:
    """Mean share of the tokens' attention that goes to the capsule, one for each injected layer."""
    found = [attention(loaded, capsule, one.inputs).to_capsule.mean(dim=(1, 2)) for one in examples]
    shares: list[float] = torch.stack(found).mean(dim=0)[list(capsule.manifest.injected)].tolist()
    return shares


def norms(capsule: Capsule) -> list[float]:
    """Norm of the learned vector of each injected layer, the mean over its tokens."""
    found: list[float] = capsule.tensors[CAPSULE_VECTOR].norm(dim=2).mean(dim=1).tolist()
    return found


def answers(loaded: LoadedBackbone, capsule: Capsule, examples: Sequence[Example]) -> list[str]:
    """The label that a capsule gives each row."""
    executor = TorchExecutor(loaded.backbone)
    found = predict(loaded, executor, capsule, [one.inputs for one in examples])
    return [one.label for one in found]


def accuracy(given: Sequence[str], examples: Sequence[Example]) -> float:
    """Share of the rows that are answered rightly."""
    right = sum(one == example.label for one, example in zip(given, examples, strict=True))
    return right / len(examples)
