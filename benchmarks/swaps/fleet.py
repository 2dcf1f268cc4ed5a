"""Versions of capsules that can be told apart by what they answer.

A version has one of a few sets of learned vectors and head weights, and a bias of its own. What
the vectors make of each text is worked out once, by an executor of our own, so what any version
has to answer to any text is known: a reply tells by its probabilities which version made it, and a
version whose vectors were mixed with another's bias is none of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.errors import BenchmarkError
from capsules.artefact.file import Capsule, digest, dump
from capsules.artefact.manifest import Golden, Manifest
from capsules.artefact.reference import reference
from capsules.backbones.base import LoadedBackbone
from capsules.executors.torch import TorchExecutor
from capsules.model import pad
from service.engine.bank import Bank

LABELS = (6, 8, 12, 20)
"""Label counts, which the tasks take in turn; enough for thousands of answers to differ."""

VECTOR_DEVIATION = 0.5
WEIGHT_DEVIATION = 0.05
BIAS_DEVIATION = 1.5
ROWS = 16
"""Texts that are worked out at a time."""

TOLERANCE = 1e-2
"""How far a probability may be from what it has to be; a server may run another executor."""


@dataclass(frozen=True, slots=True)
class Made:
    """A version.

    Attributes:
        task: number of its task.
        number: of the version among those made of its task, from 0.
        digest: of its file.
        data: its file.
    """

    task: int
    number: int
    digest: str
    data: bytes


@dataclass(frozen=True)
class Fleet:
    """Makes versions, and knows what they answer.

    Attributes:
        loaded: the backbone.
        tasks: how many tasks there are.
        vectors: how many sets of learned vectors and weights.
        texts: what is asked.
        number_of: task and number of each version that was made, by its digest.
        made: how many versions were made of each task.
    """

    loaded: LoadedBackbone
    tasks: int
    vectors: int
    texts: Sequence[str]
    number_of: dict[str, tuple[int, int]] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)

    def make(self, task: int, golden: int = 0) -> Made:
        """The next version of a task.

        Args:
            task: its number.
            golden: examples that are to be replayed at the upload.
        """
        number = self.made.get(task, 0)
        capsule = self.capsule(task, number, golden)
        data = dump(capsule)
        name = digest(data)
        self.made[task] = number + 1
        self.number_of[name] = (task, number)
        return Made(task, number, name, data)

    def capsule(self, task: int, number: int, golden: int) -> Capsule:
        """A version as a capsule."""
        count = labels_of(task)
        vectors = self.bodies[self.body(task, number)]
        manifest = Manifest(
            task=name_of(task),
            description=f"Version {number}.",
            backbone=reference(self.loaded.info),
            labels=[f"label-{label}" for label in range(count)],
            max_length=self.loaded.info.max_tokens,
            golden=[self.example(task, number, text) for text in self.shortest[:golden]],
        )
        tensors = {
            "capsule": vectors.capsule,
            "head.weight": vectors.weight[:count],
            "head.bias": torch.from_numpy(bias(task, number)),
        }
        return Capsule(manifest=manifest, tensors=tensors)

    def example(self, task: int, number: int, text: int) -> Golden:
        """What a version answers to a text, as its file records it."""
        probs = self.probabilities(task, text, number, number + 1)[0].astype(float)
        return Golden(
            inputs={"text": self.texts[text]},
            label=f"label-{int(probs.argmax())}",
            probs=probs.tolist(),
        )

    def body(self, task: int, number: int) -> int:
        """Which set of vectors a version has; never that of the one before."""
        return (task * 7 + number) % self.vectors

    def probabilities(self, task: int, text: int, first: int, end: int) -> NDArray[np.float64]:
        """What versions of a task have to answer to a text.

        Args:
            task: its number.
            text: position of the text.
            first: the first version's number.
            end: one more than the last version's.

        Returns:
            [versions, labels].
        """
        count = labels_of(task)
        numbers = range(first, end)
        bodies = [self.body(task, number) for number in numbers]
        biases = np.stack([bias(task, number) for number in numbers])
        scores = self.scores[bodies, text, :count].astype(np.float64) + biases
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        probs: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
        return probs

    def is_mixed(self, reply: Mapping[str, object], task: int, text: int) -> bool:
        """Whether a reply is not what the version that it names has to answer.

        Args:
            reply: the row of the server's reply.
            task: that was asked.
            text: position of the text.
        """
        named = self.number_of.get(str(reply["digest"]))
        if reply["task"] != name_of(task) or named is None or named[0] != task:
            return True
        told = np.asarray(reply["probs"], dtype=np.float64)
        away = np.abs(self.probabilities(task, text, 0, self.made[task]) - told).max(axis=1)
        return bool(away.argmin() != named[1] or away[named[1]] > TOLERANCE)

    @cached_property
    def shortest(self) -> list[int]:
        """Positions of the texts, the shortest first."""
        return sorted(range(len(self.texts)), key=lambda text: len(self.texts[text]))

    @cached_property
    def bodies(self) -> "list[Vectors]":
        """The sets of vectors."""
        info = self.loaded.info
        if info.family != "encoder-only":
            raise BenchmarkError(
                f"{info.id} is no encoder: this benchmark tells versions by the biases of heads; "
                "choose another backbone."
            )
        generator = torch.Generator().manual_seed(0)
        return [
            Vectors(
                capsule=torch.randn(info.num_layers, 1, info.hidden_size, generator=generator)
                * VECTOR_DEVIATION,
                weight=torch.randn(max(LABELS), info.hidden_size, generator=generator)
                * WEIGHT_DEVIATION,
            )
            for _ in range(self.vectors)
        ]

    @cached_property
    def scores(self) -> NDArray[np.float32]:
        """What each set of vectors makes of each text, [vectors, texts, labels], without bias."""
        executor = TorchExecutor(self.loaded.backbone)
        bank = Bank(self.loaded, executor.device, slots=ROWS)
        tokeniser = self.loaded.tokeniser
        found = []
        for body, vectors in enumerate(self.bodies):
            manifest = Manifest(
                task=f"vectors-{body}",
                backbone=reference(self.loaded.info),
                labels=[f"label-{label}" for label in range(max(LABELS))],
                max_length=self.loaded.info.max_tokens,
            )
            tensors = {
                "capsule": vectors.capsule,
                "head.weight": vectors.weight,
                "head.bias": torch.zeros(max(LABELS)),
            }
            served = bank.add(Capsule(manifest, tensors), version=1, digest="0" * 64)
            order = self.shortest
            lines = np.zeros((len(self.texts), max(LABELS)), dtype=np.float32)
            for start in range(0, len(order), ROWS):
                rows = order[start : start + ROWS]
                texts = [self.texts[text] for text in rows]
                encodings = tokeniser.encode(texts, served.max_tokens)
                capsules = [served] * len(rows)
                bank.pin(capsules)
                with bank.gather(capsules) as gathered:
                    tokens = pad(encodings, tokeniser.pad_id)
                    features = executor.features(tokens, gathered.prompts).cpu()
                bank.unpin(capsules)
                lines[rows] = (features @ vectors.weight.T).numpy()
            bank.remove(served)
            found.append(lines)
        return np.stack(found)


@dataclass(frozen=True, slots=True)
class Vectors:
    """Learned vectors [injections, 1, D] and the rows of a head [labels, D]."""

    capsule: torch.Tensor
    weight: torch.Tensor


def name_of(task: int) -> str:
    """The name of a task."""
    return f"task-{task:05d}"


def labels_of(task: int) -> int:
    """How many labels a task has."""
    return LABELS[task % len(LABELS)]


def bias(task: int, number: int) -> NDArray[np.float32]:
    """The bias of a version, [labels]."""
    generator = np.random.default_rng((task, number))
    return (generator.standard_normal(labels_of(task)) * BIAS_DEVIATION).astype(np.float32)
