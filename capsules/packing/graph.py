"""The packed pass as one module of tensors in, features out, which can be exported."""

import torch
from torch import Tensor, nn

from capsules.backbones.attention import Attend, Bins, attend_densely
from capsules.backbones.base import Backbone
from capsules.backbones.ends import Ends
from capsules.core import Reading, TokenBatch


class PackedEntry:
    """One packed pass, as a family's loop over its layers sees it.

    Symbols and inputs as in :class:`capsules.packing.feed.Packer`.
    """

    def __init__(self, feed: dict[str, Tensor], attend: Attend) -> None:
        self.feed = feed
        self.attend = attend
        self.capsules = feed["vectors"].shape[1]

    @property
    def positions(self) -> Tensor:
        """[1, P] each position's place in its row."""
        return self.feed["places"]

    @property
    def ends(self) -> Ends:
        """Reads the rows after the last layer."""
        return PackedEnds(self.feed)

    def mask(self, layer: int) -> Bins:
        """Where the attention of a layer takes place."""
        feed = self.feed
        bias = feed["bias"].index_select(0, feed["bias_of"][layer : layer + 1]).squeeze(0)
        return Bins(feed["gather"], feed["scatter"], bias, self.attend)

    def enter(self, layer: int, hidden: Tensor) -> Tensor:
        """Put ``S = c + A x`` into the slots, and what few variants add to it, [1, P, D].

        Args:
            layer: index of the layer.
            hidden: x, [1, P, D], slots first.
        """
        feed = self.feed
        states = hidden.squeeze(0)
        pattern = feed["pool_of"][layer : layer + 1]
        pool = feed["pool"].index_select(0, pattern).squeeze(0)
        slots = feed["vectors"][layer] + torch.matmul(pool, states)
        slots = slots + torch.cond(
            feed["special"],
            special_terms,
            no_terms,
            (
                states,
                slots,
                feed["taps"][layer],
                feed["tap_pool"].index_select(0, pattern).squeeze(0),
                feed["tap_slots"],
                feed["down"][layer],
                feed["up"][layer],
                feed["map_pool"].index_select(0, pattern).squeeze(0),
                feed["map_slots"],
            ),
        )
        return torch.cat((slots, states[self.capsules :])).unsqueeze(0)


def special_terms(
    states: Tensor,
    slots: Tensor,
    taps: Tensor,
    tap_pool: Tensor,
    tap_slots: Tensor,
    down: Tensor,
    up: Tensor,
    map_pool: Tensor,
    map_slots: Tensor,
) -> Tensor:
    """``sum_k w_k * Mean_t(x_{t+k-h}) + U V Mean(x)`` for the slots of the rows that have them.

    Args:
        states: x, [P, D].
        slots: [C, D], for its shape.
        taps: w, [E, K, D].
        tap_pool: [E K, P] shares of positions in the shifted means.
        tap_slots: [C, E] 1 where a slot belongs to a row.
        down: V, [R, rank, D].
        up: U, [R, D, rank].
        map_pool: [R, P] shares of positions in the means.
        map_slots: [C, R] 1 where a slot belongs to a row.

    Returns:
        [C, D].
    """
    shifted = torch.matmul(tap_pool, states).view(taps.shape)
    tapped = torch.matmul(tap_slots, (taps * shifted).sum(dim=1))
    means = torch.matmul(map_pool, states).unsqueeze(2)
    mapped = torch.matmul(up, torch.matmul(down, means)).squeeze(2)
    return tapped + torch.matmul(map_slots, mapped)


def no_terms(
    states: Tensor,
    slots: Tensor,
    taps: Tensor,
    tap_pool: Tensor,
    tap_slots: Tensor,
    down: Tensor,
    up: Tensor,
    map_pool: Tensor,
    map_slots: Tensor,
) -> Tensor:
    """What :func:`special_terms` gives where no row has them."""
    return torch.zeros_like(slots)


class PackedEnds:
    """The rows of a packed batch after the last layer."""

    def __init__(self, feed: dict[str, Tensor]) -> None:
        self.feed = feed

    def mean(self, hidden: Tensor) -> Tensor:
        """See :class:`capsules.backbones.ends.Ends`."""
        return torch.matmul(self.feed["mean"], hidden.squeeze(0))

    def last(self, hidden: Tensor) -> Tensor:
        """See :class:`capsules.backbones.ends.Ends`."""
        return hidden.squeeze(0).index_select(0, self.feed["last"])

    def rows(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`capsules.backbones.ends.Ends`."""
        positions = self.feed["row_positions"]
        states = hidden.squeeze(0).index_select(0, positions.flatten())
        return states.view(*positions.shape, -1), self.feed["row_mask"]


class PackedGraph(nn.Module):
    """A backbone that takes what :class:`capsules.packing.feed.Packer` packs and gives features.

    To be run inside :func:`capsules.backbones.attention.packing`.
    """

    def __init__(self, backbone: Backbone, attend: Attend = attend_densely) -> None:
        """Wrap a backbone, whose weights it shares.

        Args:
            backbone: one that :attr:`Backbone.packs`.
            attend: computes attention.
        """
        super().__init__()
        self.model = backbone.model
        self.backbone = backbone
        self.attend = attend

    def forward(self, feed: dict[str, Tensor]) -> Tensor:
        """The features, [B, D], or [M, D] where labels are words."""
        places = feed["text_places"]
        tokens = TokenBatch(feed["ids"], torch.ones_like(places, dtype=torch.bool), places)
        embedded = self.backbone.embed(tokens)
        empty = embedded.new_zeros(1, feed["vectors"].shape[1], embedded.shape[2])
        entry = PackedEntry(feed, self.attend)
        hidden = self.backbone.run(torch.cat((empty, embedded), dim=1), entry)
        reading = None
        if "path_rows" in feed:
            reading = Reading(
                feed["path_rows"], feed["prefixes"], feed["read_paths"], feed["read_steps"]
            )
        return self.backbone.read(hidden, entry.ends, reading)
