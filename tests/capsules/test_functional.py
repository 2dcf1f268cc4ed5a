import numpy as np
import pytest
import torch

from capsules.functional import (
    accumulation_dtype,
    linear_head,
    masked_mean,
    pool_weights,
    replace_slots,
)

HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [(torch.float32, torch.float32), (torch.float64, torch.float64)]
    + [(half, torch.float32) for half in HALVES],
)
def test_sums_are_taken_in_float32_or_wider(dtype: torch.dtype, wanted: torch.dtype) -> None:
    assert accumulation_dtype(dtype) == wanted
    assert pool_weights(torch.ones(1, 2, dtype=torch.bool), dtype).dtype == wanted


def test_mean_is_over_the_marked_positions_only() -> None:
    generator = np.random.default_rng(0)
    hidden = generator.normal(size=(4, 7, 5))
    mask = generator.random((4, 7)) < 0.5
    mask[:, 3] = True
    got = masked_mean(torch.from_numpy(hidden), pool_weights(torch.from_numpy(mask), torch.float64))
    for row in range(4):
        marked = [hidden[row, place] for place in range(7) if mask[row, place]]
        assert np.abs(got[row].numpy() - sum(marked) / len(marked)).max() < 1e-12


@pytest.mark.parametrize("dtype", HALVES)
def test_mean_of_half_precision_states_is_not_rounded_to_half_precision(
    dtype: torch.dtype,
) -> None:
    # In half precision the sum stops growing long before the last of the thousand ones.
    hidden = torch.ones(1, 4096, 1, dtype=dtype)
    hidden[0, -1] = 3.0
    got = masked_mean(hidden, pool_weights(torch.ones(1, 4096, dtype=torch.bool), dtype))
    assert got.dtype == torch.float32
    assert got.item() == pytest.approx(1 + 2 / 4096, abs=1e-6)


def test_slots_are_replaced_in_place_without_autograd() -> None:
    hidden = torch.arange(12.0).reshape(1, 4, 3)
    with torch.no_grad():
        replaced = replace_slots(hidden, torch.full((1, 2, 3), -1.0))
    assert replaced is hidden
    assert hidden[0, :2].eq(-1).all()
    assert hidden[0, 2:].tolist() == [[6.0, 7.0, 8.0], [9.0, 10.0, 11.0]]


def test_slots_are_replaced_in_a_copy_under_autograd() -> None:
    hidden = torch.arange(12.0).reshape(1, 4, 3)
    prompts = torch.full((1, 2, 3), -1.0, requires_grad=True)
    replaced = replace_slots(hidden, prompts)
    assert hidden[0, 0].tolist() == [0.0, 1.0, 2.0]
    assert replaced[0].tolist() == [[-1.0] * 3, [-1.0] * 3, [6.0, 7.0, 8.0], [9.0, 10.0, 11.0]]
    replaced.sum().backward()
    assert prompts.grad is not None
    assert prompts.grad.eq(1).all()


def test_slots_take_the_dtype_of_the_hidden_states() -> None:
    hidden = torch.zeros(1, 2, 3, dtype=torch.bfloat16)
    with torch.no_grad():
        assert replace_slots(hidden, torch.ones(1, 1, 3)).dtype == torch.bfloat16


@pytest.mark.parametrize("with_bias", [True, False])
def test_each_row_has_its_own_head(with_bias: bool) -> None:
    generator = np.random.default_rng(0)
    states, weight = generator.normal(size=(3, 5)), generator.normal(size=(3, 4, 5))
    bias = generator.normal(size=(3, 4)) if with_bias else np.zeros((3, 4))
    got = linear_head(
        torch.from_numpy(states),
        torch.from_numpy(weight),
        torch.from_numpy(bias) if with_bias else None,
    )
    for row in range(3):
        for label in range(4):
            expected = sum(weight[row, label] * states[row]) + bias[row, label]
            assert got[row, label].item() == pytest.approx(expected, abs=1e-12)


def test_a_head_in_half_precision_scores_in_float32() -> None:
    weight = torch.ones(1, 2, 4, dtype=torch.bfloat16)
    assert linear_head(torch.ones(1, 4), weight, None).dtype == torch.float32
