"""The baselines by name; a new one is a file and a line here.

They need PEFT, which is not part of a plain installation, so they are imported when asked for.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from capsules.backbones.base import LoadedBackbone
from capsules.errors import OptionError
from capsules.training.learner import Learner

if TYPE_CHECKING:
    from capsules.baselines.base import Method

BASELINES = {
    "prompt-tuning": "capsules.baselines.prompt_tuning:PromptTuning",
    "p-tuning-v2": "capsules.baselines.prefix_tuning:PrefixTuning",
    "lora": "capsules.baselines.lora:Lora",
}

Builder = Callable[[LoadedBackbone, Sequence[str], int], Learner]


def method(name: str) -> "Method":
    """The baseline of that name, with its usual options.

    Raises:
        OptionError: there is none, or PEFT is not installed.
    """
    if name not in BASELINES:
        known = ", ".join(sorted(BASELINES))
        raise OptionError(
            f"There is no baseline {name!r}; choose one of: {known}.", field="baseline"
        )
    path, _, attribute = BASELINES[name].partition(":")
    created: Method = getattr(imported(path), attribute)()
    return created


def builder(name: str) -> Builder:
    """Makes learners of a baseline with its usual options.

    Returns:
        A function of the frozen backbone, the labels in head order and a seed; see
        :class:`~capsules.baselines.learner.PeftLearner` for what it raises.

    Raises:
        OptionError: there is no such baseline, or PEFT is not installed.
    """
    chosen = method(name)
    learner: Any = imported("capsules.baselines.learner").PeftLearner

    def build(loaded: LoadedBackbone, labels: Sequence[str], seed: int) -> Learner:
        built: Learner = learner(chosen, loaded, labels, seed=seed)
        return built

    return build


def imported(module: str) -> Any:
    """A module that needs PEFT.

    Raises:
        OptionError: PEFT is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "peft":
            raise
        raise OptionError(
            "Baselines need the PEFT library; install it with: pip install "
            "'capsule-server[research]'",
            field="baseline",
        ) from error
