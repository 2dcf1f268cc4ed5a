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


def test_slots_that_were_never_used_take_no_memory(slab):
    for used in range(1, 2000):
        grown(slab, 1)
        assert slab.nbytes == used * slab.slot_bytes
    slab.give(0, 1000)
    assert slab.nbytes == 1999 * slab.slot_bytes


def test_it_is_copied_a_few_times_however_large_it_grows(slab):
    copies = 0
    for _ in range(2000):
        before = slab.tensors
        grown(slab, 1)
        copies += slab.tensors is not before
    assert copies == 12


def test_only_a_sixteenth_is_idle_where_room_takes_memory(slab):
    slab.lazy = False
    slab.expected = 5000
    for used in range(1, 2000):
        grown(slab, 1)
        assert slab.capacity * 16 <= used * 17 + 16
        assert slab.nbytes == slab.capacity * slab.slot_bytes


def test_what_is_expected_fits_without_growing(slab):
    slab.expected = 300
    grown(slab, 1)
    tensors = slab.tensors
    for _ in range(299):
        grown(slab, 1)
    assert slab.tensors is tensors
    assert slab.nbytes == 300 * slab.slot_bytes
    grown(slab, 1)
    assert slab.capacity == 600


@pytest.mark.parametrize("expected", [2**50, 2**62])
def test_more_than_the_system_promises_is_not_insisted_on(slab, expected):
    slab.expected = expected
    start = grown(slab, 3)
    slab.write(start, {"weight": torch.ones(3, 4), "bias": torch.ones(3)})
    assert slab.capacity == 3
    assert slab.read(start, 3)["bias"].tolist() == [1.0] * 3


def test_free_slots_at_the_end_count_when_it_grows(slab):
    slab.lazy = False
    grown(slab, 32)
    grown(slab, 1)
    assert slab.capacity == 34
    assert grown(slab, 2) == 33
    assert slab.capacity == 36
