import pytest

from capsules.backbones.base import Family
from capsules.errors import OptionError
from capsules.reproduce.method import METHODS, choose, fitting, learning_rates, parse_rates
from capsules.training.config import DEFAULT_LEARNING_RATE
from capsules.variants.registry import VARIANTS

FAMILY: Family = "encoder-only"
DEFAULT = (DEFAULT_LEARNING_RATE[FAMILY],)


def test_every_variant_is_compared():
    compared = {one.variant for one in METHODS.values() if one.variant is not None}
    assert compared == set(VARIANTS)
    assert METHODS["capsule"].variant == "addition"
    assert METHODS["linear-head"].variant is None


def test_methods_keep_the_order_of_the_tables():
    assert [one.name for one in choose(["lora", "capsule"])] == ["capsule", "lora"]
    assert [one.name for one in choose([])] == list(METHODS)


def test_unknown_method_is_told_with_the_known_ones():
    with pytest.raises(OptionError, match=r"'adapter'; choose of: capsule, .*lora"):
        choose(["capsule", "adapter"])


def test_all_methods_fit_where_there_is_a_head():
    fit, others = fitting(choose([]), "decoder-only", named=True)
    assert (fit, others) == (list(METHODS.values()), [])


def test_head_alone_is_nothing_where_labels_are_words():
    fit, others = fitting(choose([]), "encoder-decoder", named=False)
    assert [one.name for one in others] == ["instance-only", "linear-head"]
    assert len(fit) == len(METHODS) - 2
    with pytest.raises(OptionError, match="linear-head has nothing to learn"):
        fitting(choose(["capsule", "linear-head"]), "encoder-decoder", named=True)


def test_default_rates_are_the_familys_and_the_baselines_own():
    rates = learning_rates(choose([]), FAMILY, [])
    assert rates["capsule"] == rates["linear-head"] == DEFAULT
    assert all(len(one) == 1 for one in rates.values())
    assert rates["lora"] != DEFAULT


def test_lists_are_for_all_or_for_one():
    chosen = choose(["capsule", "task-only", "lora"])
    rates = learning_rates(chosen, FAMILY, ["lora=1e-3,5e-4", "0.02,0.01,0.02"])
    assert rates == {"capsule": (0.01, 0.02), "task-only": (0.01, 0.02), "lora": (5e-4, 1e-3)}
    alone = learning_rates(chosen[:1], FAMILY, ["capsule=0.5"])
    assert alone == {"capsule": (0.5,)}


def test_list_for_a_method_that_does_not_run():
    with pytest.raises(OptionError, match="'lora', which does not run"):
        learning_rates(choose(["capsule"]), FAMILY, ["lora=0.1"])


@pytest.mark.parametrize("text", ["", "fast", "0.1,", "0", "-1", "nan", "inf", "0.1;0.2"])
def test_malformed_list(text):
    with pytest.raises(OptionError, match="no list of learning rates"):
        parse_rates(text)
