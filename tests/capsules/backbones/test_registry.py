import inspect

import pytest
from transformers import CONFIG_MAPPING

from capsules.backbones.base import Backbone
from capsules.backbones.registry import FAMILIES, backbone_class
from capsules.errors import BackboneError, BackboneFault


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_family_is_a_complete_adapter(model_type: str) -> None:
    assert model_type in CONFIG_MAPPING
    adapter = backbone_class(model_type)
    assert issubclass(adapter, Backbone)
    assert not inspect.isabstract(adapter)


@pytest.mark.parametrize("model_type", ["gpt2", "", "BERT", "bert "])
def test_other_types_are_refused_with_those_supported(model_type: str) -> None:
    with pytest.raises(BackboneError, match=r"registry\.py") as refused:
        backbone_class(model_type)
    assert refused.value.code == BackboneFault.UNSUPPORTED_FAMILY
    assert repr(model_type) in refused.value.message
    for known in FAMILIES:
        assert known in refused.value.message
