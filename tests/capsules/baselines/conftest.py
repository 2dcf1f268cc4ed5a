"""Every baseline on a tiny random backbone of every family."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

from capsules.backbones.base import LoadedBackbone
from capsules.baselines.learner import PeftLearner
from capsules.baselines.registry import method
from capsules.core import TokenBatch
from tests.support.batches import token_batch
from tests.support.claimed import INFO
from tests.support.families import subject_of
from tests.support.models import MODELS
from tests.support.texts import text, tokeniser

Load = Callable[[str], tuple[LoadedBackbone, int]]

# Two begin alike, and one of these goes on where the other ends.
LABELS = ("w7", "w8 w20", "w8")
# PEFT has no way in, see `test_a_backbone_without_a_cache_takes_no_prefix`.
IMPOSSIBLE = {("deberta-v3", "p-tuning-v2"), ("deberta-v2", "p-tuning-v2")}
CASES = [
    (family, name)
    for family in MODELS
    for name in ("prompt-tuning", "p-tuning-v2", "lora")
    if (family, name) not in IMPOSSIBLE
]
# One of each way in which a method meets a backbone.
SOME = [(family, name) for family, name in CASES if family in ("bert", "llama", "gemma3", "t5")]
TEXTS = [text(length, seed=length) for length in (7, 3, 4)]


@dataclass(frozen=True, slots=True)
class Case:
    """A baseline and the backbone under it.

    Attributes:
        name: of the baseline.
        loaded: a backbone of its own.
        pad_id: fills up its rows.
    """

    name: str
    loaded: LoadedBackbone
    pad_id: int

    def learner(self, seed: int = 0) -> PeftLearner:
        """A learner as it starts."""
        return PeftLearner(method(self.name), self.loaded, LABELS, seed=seed)

    def trained(self, seed: int = 0) -> PeftLearner:
        """A learner whose tensors are anything, so that no part is idle."""
        learner = self.learner()
        generator = torch.Generator().manual_seed(seed)
        learner.load(
            {
                name: torch.randn(value.shape, generator=generator) * 0.3
                for name, value in learner.named().items()
            }
        )
        return learner

    def tokens(self, *, left: bool = False) -> TokenBatch:
        """The texts, padded."""
        return token_batch(TEXTS, self.pad_id, width=9, left=left)


@pytest.fixture(scope="session")
def load() -> Load:
    """Gives a family's tiny backbone, always the same one, and its padding."""
    made: dict[str, tuple[LoadedBackbone, int]] = {}

    def get(family: str) -> tuple[LoadedBackbone, int]:
        if family not in made:
            subject = subject_of(MODELS[family](exact=False))
            info = replace(
                INFO,
                family=subject.backbone.family,
                hidden_size=subject.width,
                num_layers=subject.num_layers,
                max_tokens=subject.backbone.max_tokens,
            )
            loaded = LoadedBackbone(info, subject.backbone, tokeniser(subject.pad_id))
            made[family] = (loaded, subject.pad_id)
        return made[family]

    return get


@pytest.fixture(params=SOME, ids="-".join)
def case(request: pytest.FixtureRequest, load: Load) -> Case:
    family, name = request.param
    return Case(name, *load(family))


@pytest.fixture(params=CASES, ids="-".join)
def every_case(request: pytest.FixtureRequest, load: Load) -> Case:
    family, name = request.param
    return Case(name, *load(family))
