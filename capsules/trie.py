"""Labels as words: which tokens decide between them, and where."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from capsules.core import Reading
from capsules.errors import ArtefactError, ArtefactFault

# Each is a state of the decoder, so a task of very many would be far slower than all others.
MAX_BRANCHES = 512


@dataclass(frozen=True, slots=True)
class Branch:
    """A point where label words part.

    Attributes:
        prefix: token ids that the labels still in question begin with.
        tokens: the ids that can follow, in the order of the labels; at least two.
    """

    prefix: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class LabelTrie:
    """The label words of one task, as the decoder is constrained to them.

    ``P(label) = product over the branches on its way of softmax over that branch's tokens``: where
    only one token can follow there is nothing to decide, and the probabilities of all labels add up
    to one. A label that ends where another goes on competes with the end token there.

    Attributes:
        branches: those with shorter prefixes first.
        routes: for each label, which of :attr:`tokens` its way takes.
    """

    branches: tuple[Branch, ...]
    routes: tuple[tuple[int, ...], ...]

    @classmethod
    def from_words(cls, words: Mapping[str, Sequence[int]], end: int) -> "LabelTrie":
        """Build the trie.

        Args:
            words: for each label, in head order, the token ids of its word, without special
                tokens.
            end: id of the token that ends an answer.

        Raises:
            ArtefactError: a word has no tokens or holds the end token, two have the same, or they
                part in too many places.
        """
        ways: dict[tuple[int, ...], str] = {}
        following: dict[tuple[int, ...], dict[int, None]] = {}
        for label, word in words.items():
            way = (*word, end)
            if not word:
                raise unusable(label, "has no tokens; give it a word")
            if end in word:
                raise unusable(label, "holds the end of an answer; give it a plain word")
            if way in ways:
                raise unusable(
                    label,
                    f"is made of the same tokens as that of {ways[way]!r}; give them "
                    "different words",
                )
            ways[way] = label
            for step, token in enumerate(way):
                following.setdefault(way[:step], {})[token] = None
        branches = tuple(
            Branch(prefix, tuple(tokens))
            for prefix, tokens in sorted(following.items(), key=lambda item: len(item[0]))
            if len(tokens) > 1
        )
        if len(branches) > MAX_BRANCHES:
            raise ArtefactError(
                f"The label words part in {len(branches)} places, and at most {MAX_BRANCHES} can "
                "be read; give words that differ in their first token.",
                code=ArtefactFault.INVALID_LABELS,
                field="verbalizers",
            )
        places: dict[tuple[int, ...], int] = {}
        for branch in branches:
            for token in branch.tokens:
                places[*branch.prefix, token] = len(places)
        routes = tuple(
            tuple(places[way[: step + 1]] for step in range(len(way)) if way[: step + 1] in places)
            for way in ways
        )
        return cls(branches, routes)

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """C token ids, those of every branch one after the other."""
        return tuple(token for branch in self.branches for token in branch.tokens)

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """The prefixes that no other prefix begins with: running these passes every branch."""
        prefixes = sorted(branch.prefix for branch in self.branches)
        # In this order a prefix stands right before those that it begins.
        following = [*prefixes[1:], None]
        return tuple(
            one
            for one, next_one in zip(prefixes, following, strict=True)
            if next_one is None or next_one[: len(one)] != one
        )

    @cached_property
    def stops(self) -> tuple[tuple[int, int], ...]:
        """For each branch the first path that passes it, and at which step."""
        return tuple(
            (bisect_left(self.paths, branch.prefix), len(branch.prefix)) for branch in self.branches
        )

    def combine(self, shares: Sequence[Sequence[float]]) -> tuple[float, ...]:
        """``P(label)`` of every label, from each branch's probabilities in order."""
        flat = [share for of_branch in shares for share in of_branch]
        return tuple(math.prod(flat[place] for place in route) for route in self.routes)

    def matrix(self) -> Tensor:
        """[L, C] float32, 1 where a label's way takes a token."""
        matrix = torch.zeros(len(self.routes), len(self.tokens))
        for label, route in enumerate(self.routes):
            matrix[label, list(route)] = 1.0
        return matrix


def reading(tries: Sequence[LabelTrie]) -> Reading | None:
    """What to read so that every row can be answered.

    Args:
        tries: of each of the B rows.

    Returns:
        The paths of all rows; its M states are the branches of the first row in order, then those
        of the second, and so on. None where each row asks for its first token only.
    """
    if all(one.paths == ((),) for one in tries):
        return None
    rows: list[int] = []
    prefixes: list[tuple[int, ...]] = []
    stops: list[tuple[int, int]] = []
    for row, trie in enumerate(tries):
        stops += [(len(prefixes) + path, step) for path, step in trie.stops]
        rows += [row] * len(trie.paths)
        prefixes += trie.paths
    width = max(map(len, prefixes))
    # A decoder sees nothing after the position it is read at, so any token pads.
    padded = [[*prefix, *[0] * (width - len(prefix))] for prefix in prefixes]
    return Reading(
        rows=torch.tensor(rows),
        prefixes=torch.tensor(padded, dtype=torch.int64).view(len(prefixes), width),
        paths=torch.tensor([path for path, _ in stops]),
        steps=torch.tensor([step for _, step in stops]),
    )


def unusable(label: str, reason: str) -> ArtefactError:
    """The error for a label word that cannot be told from the others."""
    return ArtefactError(
        f"The word of {label!r} (--word, in a job or a manifest verbalizers) {reason}.",
        code=ArtefactFault.INVALID_LABELS,
        field=f"verbalizers.{label}",
    )
