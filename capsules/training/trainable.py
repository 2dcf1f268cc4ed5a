"""A capsule in training."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from capsules.backbones.base import LoadedBackbone
from capsules.core import TokenBatch
from capsules.errors import OptionError
from capsules.injection import Prompts
from capsules.layers import injected_layers
from capsules.model import InjectedBackbone, shared_prompts
from capsules.scoring import Scorer, scorer
from capsules.training.config import TrainingConfig
from capsules.training.learner import Learner
from capsules.variants.registry import variant

HEAD_DEVIATION = 0.02


class Trainable(Learner):
    """A variant's tensors and a head; with no variant, the head alone.

    On backbones that answer in words there is no head: labels are scored by their words.

    Attributes:
        words: label to word on such a backbone, else None.
    """

    def __init__(
        self, loaded: LoadedBackbone, config: TrainingConfig, labels: Sequence[str]
    ) -> None:
        """Start from values that depend on the configuration's seed alone.

        Args:
            loaded: the frozen backbone.
            config: the options.
            labels: in head order.

        Raises:
            OptionError: layers or verbalizers do not fit the backbone or the labels.
            ArtefactError: label words cannot be told apart.
        """
        super().__init__()
        info = loaded.info
        self.loaded = loaded
        self.model = InjectedBackbone(loaded.backbone)
        self.variant = None if config.variant is None else variant(config.variant)
        self.length = config.length
        self.layers = injected_layers(config.layers, info.num_layers)
        self.slots = 0 if self.variant is None else self.variant.slots(config.length)
        self.words = words(loaded, config, labels)
        generator = torch.Generator().manual_seed(config.seed)
        start: dict[str, Tensor] = {}
        if self.variant is not None:
            start |= self.variant.initial(info.geometry, len(self.layers), config.length, generator)
        if self.words is None:
            start["head.weight"] = (
                torch.randn(len(labels), info.hidden_size, generator=generator) * HEAD_DEVIATION
            )
        if info.family == "encoder-only":
            start["head.bias"] = torch.zeros(len(labels))
        if not start:
            raise nothing_to_learn(config)
        self.names = tuple(start)
        # Dots may not be in the names of parameters.
        self.learned = nn.ParameterDict(
            {name.replace(".", "_"): nn.Parameter(value) for name, value in start.items()}
        )
        self.to(loaded.backbone.device)
        self.fixed_scorer = None if self.words is None else scorer(loaded, {}, self.words)

    def named(self) -> dict[str, Tensor]:
        """The learned tensors by their name in the capsule file."""
        return {name: self.learned[name.replace(".", "_")] for name in self.names}

    def prompts(self, rows: int) -> Prompts:
        """The same capsule for every one of `rows` rows."""
        if self.variant is None:
            return Prompts()
        return shared_prompts(self.variant, self.length, self.layers, self.named(), rows)

    @property
    def scorer(self) -> Scorer:
        """Scores labels with the present head, or by their words."""
        return self.fixed_scorer or scorer(self.loaded, self.named(), None)

    def features(self, tokens: TokenBatch) -> Tensor:
        """What the backbone reads, [B, D]; where labels are words, [B * branches, D]."""
        rows = len(tokens)
        reading = self.scorer.reading(rows)
        if reading is not None:
            reading = reading.to(self.loaded.backbone.device)
        return self.model.features(tokens, self.prompts(rows), reading)

    def score(self, features: Tensor) -> Tensor:
        """[B, L] scores of what was read."""
        return self.scorer.scores(features)


def nothing_to_learn(config: TrainingConfig) -> OptionError:
    """The error for options under which no tensor would be learned."""
    return OptionError(
        f"On a backbone that answers in words, {config.variant or 'a linear head'} has nothing to "
        "learn; choose another variant.",
        field="variant",
    )


def words(
    loaded: LoadedBackbone, config: TrainingConfig, labels: Sequence[str]
) -> dict[str, str] | None:
    """Label to word, in the order of the labels; None where the backbone does not answer in words.

    Raises:
        OptionError: verbalizers are given where labels are not words, or do not fit the labels.
    """
    given = config.verbalizers
    if loaded.info.family != "encoder-decoder":
        if given is not None:
            raise OptionError(
                f"{loaded.info.id!r} does not answer in words; leave the words of labels "
                "(--word, in a job verbalizers) out.",
                field="verbalizers",
            )
        return None
    if given is None:
        return {label: label for label in labels}
    if set(given) != set(labels):
        odd = sorted(set(given) ^ set(labels))[0]
        raise OptionError(
            "The words of labels (--word, in a job verbalizers) must be one for each label and "
            f"nothing else; {odd!r} is {'no label' if odd in given else 'missing'}.",
            field="verbalizers",
        )
    return {label: given[label] for label in labels}
