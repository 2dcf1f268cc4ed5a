"""The means that variants are made of, against PyTorch's own convolution."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d

from capsules.functional import pool_weights, shifted_means
from capsules.variants.pool import Pool

WIDTH = 6
# The marked positions of each row: they lie side by side, after unused slots and before padding.
PLACES = (slice(0, 9), slice(3, 9), slice(2, 4), slice(8, 9), slice(0, 1), slice(1, 6))


@pytest.fixture
def hidden() -> Tensor:
    """[B, S, D], with numbers outside the marked positions that would be seen."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(len(PLACES), 9, WIDTH, generator=generator, dtype=torch.float64)
    return drawn + 1e6 * ~mask().unsqueeze(2)


def mask() -> Tensor:
    marked = torch.zeros(len(PLACES), 9, dtype=torch.bool)
    for row, places in enumerate(PLACES):
        marked[row, places] = True
    return marked


def marked_positions(hidden: Tensor, row: int) -> Tensor:
    """What counts of a row, [S, D]."""
    return hidden[row, PLACES[row]]


def convolved_mean(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``Mean_t(conv(x)_t)`` of one row [S, D] by PyTorch, weight [D, K]."""
    kernel = weight.shape[1]
    output = conv1d(
        x.T.unsqueeze(0), weight.unsqueeze(1), bias, padding=kernel // 2, groups=len(weight)
    )
    assert output.shape[2] == len(x)
    return output[0].mean(dim=1)


@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_shifted_means_are_those_of_a_convolution(hidden: Tensor, kernel: int) -> None:
    weights = pool_weights(mask(), hidden.dtype)
    got = shifted_means(hidden, weights, kernel)
    assert got.shape == (len(PLACES), kernel, WIDTH)
    for row in range(len(PLACES)):
        x = marked_positions(hidden, row)
        for offset in range(kernel):
            pick = torch.zeros(WIDTH, kernel, dtype=torch.float64)
            pick[:, offset] = 1
            torch.testing.assert_close(got[row, offset], convolved_mean(x, pick))


def test_a_convolutions_mean_is_made_of_shifted_means(hidden: Tensor) -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(WIDTH, 5, generator=generator, dtype=torch.float64)
    bias = torch.randn(WIDTH, generator=generator, dtype=torch.float64)
    means = shifted_means(hidden, pool_weights(mask(), hidden.dtype), 5)
    got = (weight.T * means).sum(dim=1) + bias
    for row in range(len(PLACES)):
        expected = convolved_mean(marked_positions(hidden, row), weight, bias)
        torch.testing.assert_close(got[row], expected)


def test_gradients_of_shifted_means_are_those_of_a_convolution(hidden: Tensor) -> None:
    weight = torch.randn(WIDTH, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mine, theirs = hidden.clone().requires_grad_(), hidden.clone().requires_grad_()
    means = shifted_means(mine, pool_weights(mask(), hidden.dtype), 5)
    ((weight.T * means).sum(dim=1) ** 2).sum().backward()
    for row in range(len(PLACES)):
        convolved_mean(marked_positions(theirs, row), weight).square().sum().backward()
    assert mine.grad is not None
    assert theirs.grad is not None
    assert theirs.grad.abs().max() > 0.1
    torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_means_are_never_taken_in_half_precision(dtype: torch.dtype) -> None:
    # In half precision a sum of these would stop growing.
    ones = torch.ones(1, 5000, 2, dtype=dtype)
    pool = Pool(ones, pool_weights(torch.ones(1, 5000, dtype=torch.bool), dtype))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert pool.mean.dtype == pool.shifted_means(5).dtype == wide
    assert pool.mean.tolist() == [[pytest.approx(1, rel=1e-4)] * 2]
    shares = [count / 5000 for count in (4998, 4999, 5000, 4999, 4998)]
    assert pool.shifted_means(5)[0, :, 0].tolist() == pytest.approx(shares, rel=1e-4)


@pytest.mark.parametrize("rows", [[0], [5, 1], [4, 3, 2, 1]])
def test_some_rows_see_only_themselves(hidden: Tensor, rows: list[int]) -> None:
    pool = Pool(hidden, pool_weights(mask(), hidden.dtype))
    some = pool.of(torch.tensor(rows))
    assert torch.equal(some.mean, pool.mean[rows])
    torch.testing.assert_close(some.shifted_means(5), pool.shifted_means(5)[rows])
    for place, row in enumerate(rows):
        torch.testing.assert_close(some.mean[place], marked_positions(hidden, row).mean(dim=0))


def test_the_mean_is_taken_once_for_all(hidden: Tensor) -> None:
    weights = pool_weights(mask(), hidden.dtype)
    pool = Pool(hidden, weights)
    some = pool.of(torch.tensor([1, 2]))
    before = some.mean.clone()
    # The slots are overwritten while variants still ask.
    hidden.zero_()
    assert torch.equal(some.mean, before)
    assert torch.equal(pool.of(torch.tensor([1])).mean, before[:1])
    assert before.abs().max() > 0
