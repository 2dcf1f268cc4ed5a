"""What PEFT adds to a frozen model, kept apart from it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftConfig, get_peft_model
from peft.tuners.tuners_utils import BaseTuner
from torch import nn
from transformers import PreTrainedModel

# What this PEFT still calls by names that transformers is about to drop.
DEPRECATED = ("past_key_values", "is_gradient_checkpointing")


class Adapter:
    """A PEFT method over a model whose weights it shares.

    PEFT puts some methods between a model and its inner modules, for good. Here they are there only
    inside :meth:`laid`; at any other time the model is as it was found, for whoever else uses it.

    Attributes:
        learned: the tensors that the method adds, by PEFT's name for them.
    """

    def __init__(self, model: PreTrainedModel, config: PeftConfig, *, seed: int) -> None:
        """Make the method's tensors.

        Args:
            model: frozen and in evaluation mode; stays so, and where it is.
            config: names the method and its options.
            seed: decides the start values, whatever was drawn before.
        """
        self.model = model
        found = dict(model.named_modules())
        with quiet(), seeded(seed):
            # Evaluation mode, since what PEFT adds comes in training mode.
            self.peft = get_peft_model(model, config).eval()
        self.learned: dict[str, nn.Parameter] = {
            name.replace(f".{self.peft.active_adapter}", ""): parameter
            for name, parameter in self.peft.named_parameters()
            if parameter.requires_grad
        }
        self.changes = {
            name: (module, found[name])
            for name, module in model.named_modules()
            if name in found and module is not found[name]
        }
        if isinstance(self.peft.base_model, BaseTuner):
            self.peft.base_model.unload()

    def __call__(self, **inputs: Any) -> Any:
        """PEFT's own forward pass, under autograd."""
        with quiet():
            return self.peft(**inputs)

    @contextmanager
    def laid(self) -> Iterator[None]:
        """Put the inner modules that the method changes in place for a while."""
        for name, (changed, _) in self.changes.items():
            self.model.set_submodule(name, changed)
        try:
            yield
        finally:
            for name, (_, original) in self.changes.items():
                self.model.set_submodule(name, original)


@contextmanager
def quiet() -> Iterator[None]:
    """Withhold warnings about how PEFT calls transformers, which nobody here can heed."""
    with warnings.catch_warnings():
        for name in DEPRECATED:
            warnings.filterwarnings("ignore", f"`{name}` is deprecated", FutureWarning)
        yield


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from `seed` on the CPU, where PEFT makes its tensors, and leave no trace of it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
