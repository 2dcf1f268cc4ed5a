import pytest
import torch

from service.engine.slab import Slab

CPU = torch.device("cpu")


def grown(slab: Slab, count: int) -> int:
    if not slab.has_room(count):
        slab.adopt(slab.larger(count))
    return slab.take(count)


@pytest.fixture
def slab() -> Slab:
    return Slab({"weight": (4,), "bias": ()}, CPU)


def test_it_starts_with_nothing(slab):
    assert slab.nbytes == 0
    assert not slab.has_room(1)


def test_what_is_written_can_be_selected_and_read(slab):
    first, second = grown(slab, 2), grown(slab, 3)
    slab.write(first, {"weight": torch.ones(2, 4), "bias": torch.zeros(2)})
    slab.write(second, {"weight": torch.full((3, 4), 2.0), "bias": torch.arange(3.0)})
    selected = slab.select(torch.tensor([second + 2, first]))
    assert selected["weight"].tolist() == [[2.0] * 4, [1.0] * 4]
    assert selected["bias"].tolist() == [2.0, 0.0]
    assert slab.read(second, 3)["bias"].tolist() == [0.0, 1.0, 2.0]


def test_growing_keeps_the_contents_and_leaves_readers_their_tensors(slab):
    start = grown(slab, 1)
    slab.write(start, {"weight": torch.ones(1, 4), "bias": torch.ones(1)})
    before = slab.tensors
    other = grown(slab, 50)
    slab.write(other, {"weight": torch.zeros(50, 4), "bias": torch.zeros(50)})
    assert slab.tensors is not before
    assert before["weight"][start].tolist() == slab.tensors["weight"][start].tolist() == [1.0] * 4


def test_a_copy_that_is_read_does_not_follow_the_slot(slab):
    start = grown(slab, 1)
    slab.write(start, {"weight": torch.ones(1, 4), "bias": torch.ones(1)})
    copy = slab.read(start, 1)
    slab.write(start, {"weight": torch.zeros(1, 4), "bias": torch.zeros(1)})
    assert copy["weight"].tolist() == [[1.0] * 4]


def test_free_slots_are_used_before_it_grows(slab):
    starts = [grown(slab, 2) for _ in range(40)]
    capacity = slab.capacity
    for start in starts[10:20]:
        slab.give(start, 2)
    again = [grown(slab, 2) for _ in range(10)]
    assert sorted(again) == sorted(starts[10:20])
    assert slab.capacity == capacity


def test_at_most_an_eighth_is_idle(slab):
    for used in range(1, 2000):
        grown(slab, 1)
        assert slab.capacity * 16 <= used * 17 + 16


def test_free_slots_at_the_end_count_when_it_grows(slab):
    grown(slab, 32)
    grown(slab, 1)
    assert slab.capacity == 34
    assert grown(slab, 2) == 33
    assert slab.capacity == 36
