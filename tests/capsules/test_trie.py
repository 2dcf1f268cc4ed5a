"""Which tokens decide between label words, and what has to be read for it."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from capsules.errors import ArtefactError, ArtefactFault
from capsules.trie import MAX_BRANCHES, Branch, LabelTrie, reading
from tests.reference.maths import softmax
from tests.reference.words import label_probabilities

END = 1

Words = Mapping[str, Sequence[int]]


def trie_of(*words: Sequence[int]) -> LabelTrie:
    """Of labels named after their place."""
    return LabelTrie.from_words({f"label-{n}": word for n, word in enumerate(words)}, END)


def ways(trie: LabelTrie) -> list[list[int]]:
    """The tokens that each label's way takes where there is a choice."""
    return [[trie.tokens[place] for place in route] for route in trie.routes]


def test_words_of_one_token_part_at_once() -> None:
    trie = trie_of([7], [9], [4])
    assert trie.branches == (Branch((), (7, 9, 4)),)
    assert trie.tokens == (7, 9, 4)
    assert ways(trie) == [[7], [9], [4]]
    assert reading([trie, trie]) is None


def test_words_of_many_tokens_that_begin_differently_part_at_once() -> None:
    trie = trie_of([7, 8, 9], [9, 8], [4, 4, 4, 4])
    assert trie.branches == (Branch((), (7, 9, 4)),)
    assert ways(trie) == [[7], [9], [4]]
    assert reading([trie]) is None


def test_words_with_a_common_beginning_part_after_it() -> None:
    trie = trie_of([7, 8, 2], [7, 8, 3], [7, 9])
    assert trie.branches == (Branch((7,), (8, 9)), Branch((7, 8), (2, 3)))
    assert ways(trie) == [[8, 2], [8, 3], [9]]
    assert trie.paths == ((7, 8),)
    assert trie.stops == ((0, 1), (0, 2))


def test_a_word_that_another_begins_with_competes_by_its_end() -> None:
    trie = trie_of([7], [7, 8], [7, 8, 9])
    assert trie.branches == (Branch((7,), (END, 8)), Branch((7, 8), (END, 9)))
    assert ways(trie) == [[END], [8, END], [8, 9]]


def test_words_of_one_and_of_many_tokens() -> None:
    trie = trie_of([5], [7, 8], [7, 9], [6, 2, 2], [6, 2, 3])
    assert trie.branches == (
        Branch((), (5, 7, 6)),
        Branch((7,), (8, 9)),
        Branch((6, 2), (2, 3)),
    )
    assert ways(trie) == [[5], [7, 8], [7, 9], [6, 2], [6, 3]]
    # The start token is passed by both paths; it is read on the first.
    assert trie.paths == ((6, 2), (7,))
    assert trie.stops == ((0, 0), (1, 1), (0, 2))


def test_the_same_token_may_be_taken_in_many_places() -> None:
    trie = trie_of([7, 7], [7, 7, 7], [8, 7])
    assert trie.branches == (Branch((), (7, 8)), Branch((7, 7), (END, 7)))
    assert trie.tokens == (7, 8, END, 7)
    assert ways(trie) == [[7, END], [7, 7], [8]]
    assert len({place for route in trie.routes for place in route}) == 4


def test_the_matrix_adds_up_a_labels_way() -> None:
    trie = trie_of([5], [7, 8], [7, 9])
    assert trie.tokens == (5, 7, 8, 9)
    assert trie.matrix().tolist() == [[1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1]]
    assert trie.combine([[0.25, 0.75], [0.5, 0.5]]) == (0.25, 0.375, 0.375)


def test_identical_words_are_refused_by_both_names() -> None:
    with pytest.raises(ArtefactError, match="made of the same tokens") as refused:
        LabelTrie.from_words({"no": [7, 8], "maybe": [9], "nope": [7, 8]}, END)
    assert refused.value.code == ArtefactFault.INVALID_LABELS
    assert refused.value.field == "verbalizers.nope"
    assert "'no'" in refused.value.message


def test_a_word_without_tokens_is_refused() -> None:
    with pytest.raises(ArtefactError, match="has no tokens; give it a word") as refused:
        LabelTrie.from_words({"no": [7], "yes": []}, END)
    assert (refused.value.code, refused.value.field) == (
        ArtefactFault.INVALID_LABELS,
        "verbalizers.yes",
    )


@pytest.mark.parametrize("word", [[END], [7, END], [7, END, 8]])
def test_a_word_that_holds_the_end_is_refused(word: list[int]) -> None:
    with pytest.raises(ArtefactError, match="holds the end of an answer") as refused:
        LabelTrie.from_words({"no": [7], "yes": word}, END)
    assert refused.value.field == "verbalizers.yes"


def doubling(branches: int) -> dict[str, list[int]]:
    """Words that part in so many places: the first token, then each in two."""
    return {
        f"{first}-{second}": [first, second]
        for first in range(2, branches + 1)
        for second in (2, 3)
    }


def test_words_that_part_in_too_many_places_are_refused() -> None:
    assert len(LabelTrie.from_words(doubling(MAX_BRANCHES), END).branches) == MAX_BRANCHES
    with pytest.raises(ArtefactError, match=f"in {MAX_BRANCHES + 1} places") as refused:
        LabelTrie.from_words(doubling(MAX_BRANCHES + 1), END)
    assert (refused.value.code, refused.value.field) == (
        ArtefactFault.INVALID_LABELS,
        "verbalizers",
    )


def test_rows_of_different_tasks_are_read_together() -> None:
    plain, deep = trie_of([7], [9]), trie_of([5], [7, 8], [7, 9], [6, 2, 2], [6, 2, 3])
    found = reading([plain, deep, plain])
    assert found is not None
    assert found.rows.tolist() == [0, 1, 1, 2]
    # What pads a path stands after everything that is read.
    assert found.prefixes.shape == (4, 2)
    assert found.prefixes[1].tolist() == [6, 2]
    assert found.prefixes[2, 0].item() == 7
    assert found.paths.tolist() == [0, 1, 2, 1, 3]
    assert found.steps.tolist() == [0, 0, 1, 2, 0]


def test_rows_whose_words_all_begin_alike_are_read_where_they_part() -> None:
    found = reading([trie_of([7, 8], [7, 9])])
    assert found is not None
    assert (found.rows.tolist(), found.prefixes.tolist()) == ([0], [[7]])
    assert (found.paths.tolist(), found.steps.tolist()) == ([0], [1])


any_words = st.lists(
    st.lists(st.integers(2, 4), min_size=1, max_size=4).map(tuple),
    min_size=2,
    max_size=8,
    unique=True,
)


def scores_after(prefix: Sequence[int]) -> list[float]:
    """Of five tokens, some numbers that depend on everything before."""
    return [
        math.sin(37.0 * sum((n + 2) * t for n, t in enumerate(prefix)) + 5 * v) for v in range(5)
    ]


@given(any_words)
@settings(max_examples=200, deadline=None)
def test_labels_have_their_share_of_what_can_be_said(words: list[tuple[int, ...]]) -> None:
    trie = trie_of(*words)
    shares = []
    for branch in trie.branches:
        scores = scores_after(branch.prefix)
        shares.append(softmax(np.array([scores[t] for t in branch.tokens])))
    got = trie.combine([share.tolist() for share in shares])
    expected = label_probabilities(lambda prefix: np.array(scores_after(prefix)), words, END)
    assert got == pytest.approx(expected.tolist(), abs=1e-12)
    assert sum(got) == pytest.approx(1, abs=1e-12)
    logs = torch.tensor([math.log(share) for one in shares for share in one]).double()
    by_matrix = (trie.matrix().double() @ logs).exp()
    assert by_matrix.tolist() == pytest.approx(list(got), abs=1e-6)


@given(st.lists(any_words, min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_every_branch_of_every_row_is_read_once_in_order(
    sets: list[list[tuple[int, ...]]],
) -> None:
    tries = [trie_of(*words) for words in sets]
    wanted = [(row, branch.prefix) for row, trie in enumerate(tries) for branch in trie.branches]
    found = reading(tries)
    if found is None:
        assert wanted == [(row, ()) for row in range(len(tries))]
        return
    read = []
    for path, step in zip(found.paths.tolist(), found.steps.tolist(), strict=True):
        prefix = tuple(found.prefixes[path, :step].tolist())
        read.append((found.rows[path].item(), prefix))
    assert read == wanted
    for row, trie in enumerate(tries):
        mine = [trie.branches[n].prefix for n in range(len(trie.branches))]
        assert [len(one) for one in mine] == sorted(len(one) for one in mine)
        # No path is run that another passes.
        assert (found.rows == row).sum() == len(trie.paths) <= len(mine)
        assert all(two[: len(one)] != one for one, two in pairwise(trie.paths))
