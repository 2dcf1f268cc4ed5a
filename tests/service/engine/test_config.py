import pytest
import torch

from capsules.errors import OptionError
from service.engine.config import EngineConfig
from service.settings import BATCHES_AT_ONCE, MAX_BATCH_ROWS, SettingsError, load_settings


def test_the_limits_follow_the_device():
    config = EngineConfig(max_batch_rows=8)
    on_cpu, on_cuda = (config.limits(torch.device(name)) for name in ("cpu", "cuda"))
    assert on_cpu.max_rows == on_cuda.max_rows == 8
    assert (on_cpu.max_tokens, on_cuda.max_tokens) == (2048, 32_768)
    assert on_cpu.free_padding < on_cuda.free_padding


def test_a_chosen_token_budget_holds_everywhere():
    config = EngineConfig(max_batch_tokens=100, max_padding=1.5)
    limits = config.limits(torch.device("cuda:1"))
    assert (limits.max_tokens, limits.max_padding) == (100, 1.5)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("threads", 0),
        ("max_batch_tokens", 0),
        ("tokenise_threads", 0),
        ("queue_rows", 0),
        ("max_batch_rows", 0),
        ("max_padding", 0.9),
        ("max_padding", float("nan")),
        ("grace_s", -1.0),
        ("grace_s", float("nan")),
        ("bank_slots", 127),
        ("attention_cost", -0.1),
        ("attention_cost", float("nan")),
        ("caller_weights", {"a": 0.0}),
        ("caller_weights", {"a": 1.0, "b": float("inf")}),
        ("caller_weights", {"a": float("nan")}),
    ],
)
def test_values_out_of_range_are_refused_by_name(field, value):
    with pytest.raises(OptionError) as caught:
        EngineConfig(**{field: value})
    assert caught.value.field == field
    assert field in caught.value.message


def test_a_bank_as_large_as_a_batch_that_runs_and_one_that_is_prepared_is_enough():
    assert EngineConfig(bank_slots=8, max_batch_rows=4).bank_slots == 8
    with pytest.raises(OptionError, match=r"2 \* 4 capsules"):
        EngineConfig(bank_slots=7, max_batch_rows=4)


def test_a_bank_that_the_settings_let_pass_is_large_enough_for_the_engine():
    most = BATCHES_AT_ONCE * MAX_BATCH_ROWS
    assert EngineConfig(bank_slots=load_settings(bank_slots=most).bank_slots).bank_slots == most
    with pytest.raises(SettingsError):
        load_settings(bank_slots=most - 1)
    with pytest.raises(OptionError):
        EngineConfig(bank_slots=most - 1)


def test_where_padding_is_free_batches_have_more_rows_and_fewer_positions():
    config = EngineConfig()
    padding, free = (
        config.limits(torch.device("cpu"), padding_free=padding_free)
        for padding_free in (False, True)
    )
    assert (padding.max_rows, padding.max_tokens, padding.padding_free) == (32, 2048, False)
    assert (free.max_rows, free.max_tokens, free.padding_free) == (64, 256, True)
    assert free.window < padding.window


def test_batches_that_run_at_a_time_fit_on_the_device_together():
    config = EngineConfig(bank_slots=20, max_batch_rows=8)
    assert config.lanes(16, padding_free=True) == 2
    assert EngineConfig().lanes(4, padding_free=True) == 4
