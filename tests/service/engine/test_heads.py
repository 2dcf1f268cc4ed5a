import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from service.engine.heads import Heads, head_rows, head_slab, padded_blocks, softmax_by_segment

CPU = torch.device("cpu")
WAYS = ("one_by_one", "together")


def heads_of(counts: list[int], *, hidden: int = 8, bias: bool = True, seed: int = 0):
    """Random heads in a slab, with features and the probabilities worked out one head at a time."""
    generator = torch.Generator().manual_seed(seed)
    slab = head_slab(hidden, CPU)
    features = torch.randn(len(counts), hidden, generator=generator)
    starts, expected = [], []
    for row, labels in enumerate(counts):
        weight = torch.randn(labels, hidden, generator=generator)
        shift = torch.randn(labels, generator=generator) if bias else None
        slab.adopt(slab.larger(labels))
        start = slab.take(labels)
        slab.write(start, head_rows(weight, shift))
        starts.append(start)
        scores = weight.double() @ features[row].double()
        if shift is not None:
            scores += shift.double()
        expected.append(scores.softmax(0))
    heads = Heads(starts=starts, counts=counts, tries=[None] * len(counts), **slab.tensors)
    return heads, features, expected


def assert_close(answers: list[tuple[float, ...]], expected: list[Tensor]) -> None:
    assert [len(row) for row in answers] == [len(row) for row in expected]
    for answer, probs in zip(answers, expected, strict=True):
        assert torch.tensor(answer, dtype=torch.float64) == pytest.approx(probs, abs=1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "counts",
    [[3], [2, 2, 2], [2, 77, 3, 150, 16, 17, 2], [1000, 2]],
    ids=lambda c: "-".join(map(str, c)),
)
@pytest.mark.parametrize("bias", [True, False])
def test_each_row_gets_its_own_heads_probabilities(way, counts, bias):
    heads, features, expected = heads_of(counts, bias=bias)
    assert_close(getattr(heads, way)(features, heads.spans), expected)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=12), st.integers(0, 1000))
def test_both_ways_agree_on_any_mix(counts, seed):
    heads, features, expected = heads_of(counts, seed=seed)
    for way in WAYS:
        assert_close(getattr(heads, way)(features, heads.spans), expected)


def test_rows_on_a_cpu_are_read_one_by_one():
    heads, features, expected = heads_of([2, 5])
    assert_close(heads.probabilities(features), expected)


def test_a_row_gets_the_same_to_the_bit_alone_and_among_others():
    counts = [2, 77, 3, 150, 16, 17, 2]
    heads, features, _ = heads_of(counts, hidden=384)
    together = heads.probabilities(features)
    for row in range(len(counts)):
        alone = Heads(
            starts=[heads.starts[row]],
            counts=[counts[row]],
            tries=[None],
            weight=heads.weight,
            bias=heads.bias,
        )
        assert alone.probabilities(features[row : row + 1]) == [together[row]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_features_that_are_no_numbers_spoil_only_their_row(way, poison):
    heads, features, expected = heads_of([3, 20, 4])
    features[1, 0] = poison
    answers = getattr(heads, way)(features, heads.spans)
    assert not math.isfinite(sum(answers[1]))
    assert_close([answers[0], answers[2]], [expected[0], expected[2]])


@pytest.mark.parametrize("way", WAYS)
def test_large_scores_do_not_overflow(way):
    heads, features, _ = heads_of([3, 20])
    answers = getattr(heads, way)(features * 1e4, heads.spans)
    assert all(math.isclose(sum(row), 1.0, rel_tol=1e-5) for row in answers)


def test_heads_of_like_size_share_a_block():
    blocks = padded_blocks([(1, 2), (3, 16), (19, 17), (36, 30), (66, 40)])
    assert [block.shape for block in blocks] == [(2, 16), (2, 30), (1, 40)]
    assert blocks[0][0].tolist() == [1, 2, *[0] * 14]


def test_softmax_stays_within_its_segment():
    probs = softmax_by_segment(np.array([0, 0, 5, 1, 1, 1], dtype=np.float32), np.array([2, 1, 3]))
    assert probs == pytest.approx([0.5, 0.5, 1, 1 / 3, 1 / 3, 1 / 3])
