"""A baseline as the trainer takes it."""

from collections.abc import Sequence
from dataclasses import dataclass

import peft
import torch
from torch import Tensor, nn

from capsules.backbones.base import LoadedBackbone
from capsules.baselines.adapter import Adapter
from capsules.baselines.base import Method
from capsules.core import TokenBatch
from capsules.errors import OptionError
from capsules.model import right_padded
from capsules.scoring import Scorer, scorer
from capsules.training.learner import Learner
from capsules.training.trainable import HEAD_DEVIATION


@dataclass(frozen=True, slots=True)
class Counts:
    """How many numbers a learner trains.

    Attributes:
        method: those of the method itself.
        head: those of the head, which all methods need alike; 0 where labels are words.
    """

    method: int
    head: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.method + self.head


class PeftLearner(Learner):
    """A method's tensors, and a head as capsules have it, on a frozen backbone.

    The backbone's weights are shared and never change; what PEFT puts into the backbone is there
    during a forward pass only.
    """

    def __init__(
        self, method: Method, loaded: LoadedBackbone, labels: Sequence[str], *, seed: int
    ) -> None:
        """Start from values that depend on the seed alone.

        Args:
            method: what to learn.
            loaded: the frozen backbone, which must not be moved from here on.
            labels: in head order; where the backbone answers in words, their own words.
            seed: of the start values.

        Raises:
            OptionError: the method cannot be applied to this backbone.
            ArtefactError: label words cannot be told apart.
        """
        super().__init__()
        backbone = loaded.backbone
        self.method = method
        self.loaded = loaded
        self.slots = method.slots(backbone)
        self.identity = f"{method!r} of peft {peft.__version__}"
        self.adapter = Adapter(method.part(backbone), method.config(backbone), seed=seed)
        start = dict(self.adapter.learned)
        for name, value in initial_head(loaded, len(labels), seed).items():
            start[name] = nn.Parameter(value.to(backbone.device))
        self.names = tuple(start)
        # Dots may not be in the names of parameters.
        self.learned = nn.ParameterDict({plain(name): value for name, value in start.items()})
        answers_in_words = loaded.info.family == "encoder-decoder"
        self.fixed_scorer = (
            scorer(loaded, {}, {label: label for label in labels}) if answers_in_words else None
        )

    def named(self) -> dict[str, Tensor]:
        """The learned tensors: the method's by PEFT's name, the head's as in a capsule file."""
        return {name: self.learned[plain(name)] for name in self.names}

    @property
    def counts(self) -> Counts:
        """How many numbers are trained."""
        sizes = {name: value.numel() for name, value in self.named().items()}
        head = sum(size for name, size in sizes.items() if name.startswith("head."))
        return Counts(method=sum(sizes.values()) - head, head=head)

    @property
    def scorer(self) -> Scorer:
        """Scores labels with the present head, or by their words."""
        return self.fixed_scorer or scorer(self.loaded, self.named(), None)

    def features(self, tokens: TokenBatch) -> Tensor:
        """What the backbone reads, [B, D]; where labels are words, [B * branches, D].

        Raises:
            OptionError: the rows and the method's slots are more than the backbone takes.
        """
        backbone = self.loaded.backbone
        width = tokens.input_ids.shape[1]
        if self.slots and width + self.slots > backbone.max_tokens:
            raise OptionError(
                f"{width} tokens of text and {self.slots} of {self.method.name} are more than the "
                f"{backbone.max_tokens} positions of this backbone; lower max_length.",
                field="max_length",
            )
        reading = self.scorer.reading(len(tokens))
        if reading is not None:
            reading = reading.to(backbone.device)
        return self.method.features(backbone, self.adapter, right_padded(tokens), reading)

    def score(self, features: Tensor) -> Tensor:
        """[B, L] scores of what was read."""
        return self.scorer.scores(features)


def initial_head(loaded: LoadedBackbone, labels: int, seed: int) -> dict[str, Tensor]:
    """Start values of the head, those of a linear head alone with the same seed."""
    info = loaded.info
    if info.family == "encoder-decoder":
        return {}
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(labels, info.hidden_size, generator=generator) * HEAD_DEVIATION
    if info.family == "decoder-only":
        return {"head.weight": weight}
    return {"head.weight": weight, "head.bias": torch.zeros(labels)}


def plain(name: str) -> str:
    """A name that torch accepts for a parameter."""
    return name.replace(".", "_")
