import builtins
import sys
from typing import Any

import pytest

from capsules.backbones.base import LoadedBackbone
from capsules.baselines.learner import PeftLearner
from capsules.baselines.registry import BASELINES, builder, imported, method
from capsules.errors import OptionError


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_can_be_built(name: str, tiny: LoadedBackbone) -> None:
    learner = builder(name)(tiny, ["no", "yes"], 3)
    assert isinstance(learner, PeftLearner)
    assert learner.method == method(name)
    assert method(name).name == name
    assert method(name).learning_rate > 0


def test_an_unknown_baseline_is_refused() -> None:
    with pytest.raises(OptionError, match=r"'bitfit'; choose one of: lora, p-tuning-v2") as caught:
        builder("bitfit")
    assert caught.value.field == "baseline"


def test_without_peft_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name.split(".")[0] == "peft" or name.startswith("capsules.baselines."):
            monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.split(".")[0] == "peft":
            raise ModuleNotFoundError("No module named 'peft'", name="peft")
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OptionError, match=r"pip install 'capsule-server\[research\]'"):
        method("lora")


def test_another_missing_module_is_not_blamed_on_peft() -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        imported("capsules.baselines.nowhere")
