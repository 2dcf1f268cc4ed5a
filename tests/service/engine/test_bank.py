import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from weakref import ref

import pytest
import torch

from capsules.artefact.file import Capsule
from capsules.backbones.base import BackboneInfo, LoadedBackbone
from service.engine.bank import Bank, BankStats
from service.engine.records import Served
from service.engine.slab import Slab
from service.engine.tiers import Hosted, Resident
from tests.support.capsules import random_capsule

CPU = torch.device("cpu")


@pytest.fixture
def bank(loaded: LoadedBackbone) -> Bank:
    return Bank(loaded, CPU, slots=100)


def add(bank: Bank, capsule: Capsule, version: int = 1) -> Served:
    return bank.add(capsule, version=version, digest="0" * 64)


@contextmanager
def gathered(bank: Bank, capsules: Sequence[Served]) -> Iterator[list[dict[str, torch.Tensor]]]:
    """What a batch would run each row with: its learned tensors and head, put together again."""
    assert bank.pin(capsules) == set()
    try:
        with bank.gather(capsules) as batch:
            rows: list[dict[str, torch.Tensor]] = [{} for _ in capsules]
            for group in batch.prompts.groups:
                members = range(len(capsules)) if group.rows is None else group.rows.tolist()
                for place, row in enumerate(members):
                    for name, tensor in group.tensors.items():
                        rows[row][name] = tensor[place]
            for row, (start, labels) in zip(rows, batch.heads.spans, strict=True):
                row["head.weight"] = batch.heads.weight[start : start + labels]
                row["head.bias"] = batch.heads.bias[start : start + labels]
            yield rows
    finally:
        bank.unpin(capsules)


def assert_holds(bank: Bank, served: Sequence[Served], capsules: Sequence[Capsule]) -> None:
    with gathered(bank, served) as rows:
        for row, capsule in zip(rows, capsules, strict=True):
            assert row.keys() == capsule.tensors.keys()
            assert all(torch.equal(row[name], capsule.tensors[name]) for name in row)


def tensor_bytes(capsules: Sequence[Capsule]) -> int:
    return sum(tensor.nbytes for capsule in capsules for tensor in capsule.tensors.values())


class TestServing:
    def test_what_is_served_is_what_the_manifest_says(self, bank, info):
        capsule = random_capsule(
            info, task="nli", labels=["yes", "no"], length=3, template="{a} and {b}", max_length=20
        )
        served = bank.add(capsule, version=7, digest="ab" * 32)
        assert (served.task, served.version, served.digest) == ("nli", 7, "ab" * 32)
        assert served.labels == ("yes", "no")
        assert served.template.fields == ("a", "b")
        assert (served.max_tokens, served.slots) == (17, 3)

    def test_rows_of_one_shape_are_one_group_in_order(self, bank, info):
        capsules = [random_capsule(info, labels=5, seed=seed) for seed in range(4)]
        served = [add(bank, capsule) for capsule in capsules]
        bank.pin(served)
        with bank.gather(served) as batch:
            (group,) = batch.prompts.groups
            assert group.rows is None
            assert group.slots == 1
        assert_holds(bank, served, capsules)

    def test_any_mix_of_lengths_and_label_counts_goes_into_one_batch(self, bank, info):
        shapes = [(2, 1), (77, 3), (2, 1), (5, 2), (150, 1), (3, 3)]
        capsules = [
            random_capsule(info, labels=labels, length=length, seed=labels)
            for labels, length in shapes
        ]
        served = [add(bank, capsule) for capsule in capsules]
        assert_holds(bank, served, capsules)
        order = [4, 0, 3, 3, 1, 5, 0]
        assert_holds(bank, [served[i] for i in order], [capsules[i] for i in order])

    def test_the_caller_keeps_its_tensors(self, bank, info):
        capsule = random_capsule(info)
        served = add(bank, capsule)
        original = capsule.tensors["capsule"].clone()
        capsule.tensors["capsule"].zero_()
        with gathered(bank, [served]) as rows:
            assert torch.equal(rows[0]["capsule"], original)

    def test_heads_without_bias_get_none_added(self, loaded, info):
        decoder = replace(info, family="decoder-only")
        bank = Bank(replace(loaded, info=decoder), CPU, slots=10)
        capsule = random_capsule(decoder)
        assert "head.bias" not in capsule.tensors
        with gathered(bank, [add(bank, capsule)]) as rows:
            assert rows[0]["head.bias"].tolist() == [0.0, 0.0, 0.0]

    def test_equal_templates_are_one_object(self, bank, info):
        first, second = (add(bank, random_capsule(info, seed=seed)) for seed in range(2))
        assert first.template is second.template
        watched = ref(first.template)
        bank.remove(first)
        bank.remove(second)
        del first, second
        assert watched() is None


class TestRemoval:
    def test_a_removed_capsule_cannot_be_pinned(self, bank, info):
        kept, gone = add(bank, random_capsule(info)), add(bank, random_capsule(info))
        bank.remove(gone)
        assert bank.pin([kept, gone]) == {gone}
        assert bank.stats().pinned == 1

    def test_a_pinned_capsule_stays_until_its_last_row_is_done(self, bank, info):
        capsule = random_capsule(info)
        served = add(bank, capsule)
        bank.pin([served, served])
        bank.remove(served)
        assert bank.pin([served]) == {served}
        bank.unpin([served])
        other = add(bank, random_capsule(info, seed=1))
        with bank.gather([served]) as batch:
            assert torch.equal(
                batch.prompts.groups[0].tensors["capsule"][0], capsule.tensors["capsule"]
            )
        assert bank.stats().resident == 2
        bank.unpin([served])
        assert bank.stats().resident == 1
        bank.remove(other)
        assert bank.stats() == BankStats(
            resident=0, host=0, pinned=0, bytes=bank.stats().bytes, host_bytes=0
        )

    def test_removing_twice_changes_nothing(self, bank, info):
        served = add(bank, random_capsule(info))
        bank.remove(served)
        bank.remove(served)
        assert bank.stats().resident == 0

    def test_a_thousand_cycles_leave_its_size_as_it_was(self, bank, info):
        shapes = [(2, 1), (77, 1), (7, 2), (150, 1), (16, 3)]
        capsules = [random_capsule(info, labels=n, length=k) for n, k in shapes]
        standing = [add(bank, capsule) for capsule in capsules]
        sizes = []
        for _ in range(1000):
            passing = [add(bank, capsule) for capsule in reversed(capsules)]
            for served in passing:
                bank.remove(served)
            sizes.append(bank.stats().bytes)
        assert set(sizes) == {sizes[0]}
        assert_holds(bank, standing, capsules)

    def test_an_upload_that_fails_leaves_no_trace(self, bank, info, monkeypatch):
        kept = add(bank, random_capsule(info))

        def fail(*_: object) -> None:
            raise RuntimeError("out of memory")

        with monkeypatch.context() as patch:
            patch.setattr(Slab, "write", fail)
            with pytest.raises(RuntimeError, match="out of memory"):
                add(bank, random_capsule(info))
        assert bank.stats().resident == 1
        bank.remove(kept)
        assert_all_free(bank)


def assert_all_free(bank: Bank) -> None:
    """Every slot has come back, but for the one that pads heads."""
    heads, *others = slabs(bank)
    assert heads.free.ranges == [(1, heads.capacity)]
    assert all(slab.free.ranges == [(0, slab.capacity)] for slab in others)


def slabs(bank: Bank) -> list[Slab]:
    return [bank.tiers.heads, *(kind.slab for kind in bank.tiers.kinds.values())]


class TestMemory:
    def test_a_thousand_capsules_cost_at_most_a_fifth_more_than_their_tensors(self, loaded, info):
        bank = Bank(loaded, CPU, slots=1000)
        generator = random.Random(0)
        capsules = [
            random_capsule(
                info, labels=generator.randint(2, 150), length=generator.choice([1, 1, 2])
            )
            for _ in range(1000)
        ]
        for capsule in capsules:
            add(bank, capsule)
        assert tensor_bytes(capsules) <= bank.stats().bytes <= 1.2 * tensor_bytes(capsules)

    def test_few_capsules_of_many_shapes_cost_no_more_either(self, loaded, info):
        bank = Bank(loaded, CPU, slots=1000)
        capsules = [
            random_capsule(info, labels=2 + number, length=1 + number % 10) for number in range(30)
        ]
        for capsule in capsules:
            add(bank, capsule)
        assert bank.stats().bytes <= 1.2 * tensor_bytes(capsules)


class TestPaging:
    @pytest.fixture
    def bank(self, loaded: LoadedBackbone) -> Bank:
        return Bank(loaded, CPU, slots=4)

    def tiers(self, bank: Bank, served: Sequence[Served]) -> list[type]:
        return [type(bank.entries[one].place) for one in served]

    def test_beyond_its_slots_capsules_wait_in_host_memory(self, bank, info):
        capsules = [random_capsule(info, seed=seed) for seed in range(6)]
        served = [add(bank, capsule) for capsule in capsules]
        assert self.tiers(bank, served) == [Resident] * 4 + [Hosted] * 2
        stats = bank.stats()
        assert (stats.resident, stats.host) == (4, 2)
        assert stats.host_bytes == tensor_bytes(capsules[4:])

    def test_the_least_recently_used_makes_room(self, bank, info):
        capsules = [random_capsule(info, seed=seed) for seed in range(5)]
        served = [add(bank, capsule) for capsule in capsules]
        assert_holds(bank, [served[0], served[2]], [capsules[0], capsules[2]])
        assert_holds(bank, [served[4]], [capsules[4]])
        assert self.tiers(bank, served) == [Resident, Hosted, Resident, Resident, Resident]

    def test_a_capsule_is_never_in_both_tiers(self, bank, info):
        capsules = [random_capsule(info, labels=2 + seed, seed=seed) for seed in range(12)]
        served = [add(bank, capsule) for capsule in capsules]
        generator = random.Random(0)
        for _ in range(200):
            chosen = [generator.randrange(12) for _ in range(4)]
            assert_holds(bank, [served[i] for i in chosen], [capsules[i] for i in chosen])
            stats = bank.stats()
            hosted = [n for n, tier in enumerate(self.tiers(bank, served)) if tier is Hosted]
            assert stats.resident == 4
            assert stats.host == len(hosted) == 8
            assert stats.host_bytes == tensor_bytes([capsules[n] for n in hosted])

    def test_more_waiting_capsules_than_slots_still_run_in_batches(self, bank, info):
        capsules = [random_capsule(info, seed=seed) for seed in range(10)]
        served = [add(bank, capsule) for capsule in capsules]
        bank.pin(served)
        for start in range(0, 8, 4):
            batch = slice(start, start + 4)
            assert_holds(bank, served[batch], capsules[batch])
        assert bank.stats().pinned == 10

    def test_of_waiting_capsules_those_that_are_needed_last_make_room(self, bank, info):
        served = [add(bank, random_capsule(info, seed=seed)) for seed in range(5)]
        bank.pin(served)
        with bank.gather([served[4]]):
            assert self.tiers(bank, served) == [Resident] * 3 + [Hosted, Resident]

    def test_a_running_batch_keeps_its_capsules_on_the_device(self, bank, info):
        served = [add(bank, random_capsule(info, seed=seed)) for seed in range(6)]
        bank.pin(served)
        with bank.gather(served[:2]):
            with bank.gather(served[4:]):
                assert self.tiers(bank, served) == [Resident] * 2 + [Hosted] * 2 + [Resident] * 2
            with (
                pytest.raises(AssertionError, match="than there are slots"),
                bank.gather(served[2:]),
            ):
                pass
        assert all(entry.leases == 0 for entry in bank.entries.values())

    def test_capsules_in_host_memory_can_be_removed_and_their_slots_go_on(self, bank, info):
        capsules = [random_capsule(info, seed=seed) for seed in range(6)]
        served = [add(bank, capsule) for capsule in capsules]
        bank.remove(served[5])
        bank.remove(served[0])
        assert (bank.stats().resident, bank.stats().host) == (3, 1)
        assert_holds(bank, [served[4]], [capsules[4]])
        assert (bank.stats().resident, bank.stats().host_bytes) == (4, 0)

    def test_a_capsule_removed_while_it_waits_in_host_memory_still_runs(self, bank, info):
        capsules = [random_capsule(info, seed=seed) for seed in range(5)]
        served = [add(bank, capsule) for capsule in capsules]
        bank.pin([served[4]])
        bank.remove(served[4])
        with bank.gather([served[4]]) as batch:
            tensor = batch.prompts.groups[0].tensors["capsule"][0]
            assert torch.equal(tensor, capsules[4].tensors["capsule"])
        bank.unpin([served[4]])
        assert (bank.stats().resident, bank.stats().host) == (3, 1)

    def test_it_counts_what_comes_and_goes(self, bank, info):
        capsules = [random_capsule(info, seed=seed) for seed in range(6)]
        served = [add(bank, capsule) for capsule in capsules]
        assert (bank.stats().page_ins, bank.stats().evictions) == (0, 0)
        assert_holds(bank, served[:4], capsules[:4])
        assert (bank.stats().page_ins, bank.stats().evictions) == (0, 0)
        assert_holds(bank, served[4:], capsules[4:])
        assert (bank.stats().page_ins, bank.stats().evictions) == (2, 2)
        bank.remove(served[5])
        assert_holds(bank, [served[0]], [capsules[0]])
        assert (bank.stats().page_ins, bank.stats().evictions) == (3, 2)

    def test_bringing_capsules_in_copies_no_slab(self, loaded, info):
        generator = random.Random(0)
        capsules = [
            random_capsule(info, labels=generator.randint(2, 150), seed=seed) for seed in range(60)
        ]
        bank = Bank(loaded, CPU, slots=30)
        bank.expect(60, tensor_bytes(capsules))
        served = [add(bank, capsule) for capsule in capsules]
        before = [tensor.data_ptr() for slab in slabs(bank) for tensor in slab.tensors.values()]
        for _ in range(300):
            chosen = generator.sample(range(60), 8)
            assert_holds(bank, [served[i] for i in chosen], [capsules[i] for i in chosen])
        after = [tensor.data_ptr() for slab in slabs(bank) for tensor in slab.tensors.values()]
        assert after == before
        assert bank.stats().page_ins > 900


class TestExpecting:
    def test_capsules_that_are_expected_come_without_a_slab_being_copied(self, loaded, info):
        capsules = [random_capsule(info, labels=2 + n % 40, seed=n) for n in range(80)]
        bank = Bank(loaded, CPU, slots=100)
        bank.expect(len(capsules), tensor_bytes(capsules))
        add(bank, capsules[0])
        before = [slab.tensors for slab in slabs(bank)]
        for capsule in capsules[1:]:
            add(bank, capsule)
        assert all(slab.tensors is old for slab, old in zip(slabs(bank), before, strict=True))
        assert tensor_bytes(capsules) <= bank.stats().bytes <= 1.05 * tensor_bytes(capsules)

    def test_no_more_is_expected_than_there_are_places_for(self, loaded, info):
        bank = Bank(loaded, CPU, slots=10)
        row_bytes = bank.tiers.heads.slot_bytes
        bank.expect(100, 400 * row_bytes)
        add(bank, random_capsule(info))
        heads, prompts = slabs(bank)
        assert (heads.capacity, prompts.capacity) == (2 * 40, 2 * 10)

    def test_none_may_be_expected(self, bank, info):
        bank.expect(0, 0)
        capsule = random_capsule(info)
        assert_holds(bank, [add(bank, capsule)], [capsule])


class Churn(threading.Thread):
    """Adds, gathers and removes capsules, each with a constant of its own in all its tensors."""

    def __init__(self, bank: Bank, info: BackboneInfo, seed: int) -> None:
        super().__init__(name=f"churn-{seed}")
        self.bank = bank
        self.info = info
        self.random = random.Random(seed)
        self.mine: list[tuple[Served, float]] = []
        self.finished = False

    def run(self) -> None:
        for _ in range(150):
            self.mine.append(self.added())
            self.check(self.random.choices(self.mine, k=3))
            if len(self.mine) > 6:
                self.bank.remove(self.mine.pop(self.random.randrange(len(self.mine)))[0])
        for served, _ in self.mine:
            self.bank.remove(served)
        self.finished = True

    def added(self) -> tuple[Served, float]:
        mark = self.random.random()
        capsule = random_capsule(
            self.info, labels=self.random.randint(2, 9), length=self.random.randint(1, 2)
        )
        for tensor in capsule.tensors.values():
            tensor.fill_(mark)
        return add(self.bank, capsule), mark

    def check(self, chosen: Sequence[tuple[Served, float]]) -> None:
        with gathered(self.bank, [served for served, _ in chosen]) as rows:
            for row, (_, mark) in zip(rows, chosen, strict=True):
                assert all(torch.all(tensor == mark) for tensor in row.values())


def test_threads_may_add_remove_and_gather_at_once(loaded, info):
    # As many slots as four batches of three rows can hold at a time, and far fewer than capsules.
    bank = Bank(loaded, CPU, slots=12)
    threads = [Churn(bank, info, seed) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(thread.finished for thread in threads)
    stats = bank.stats()
    assert (stats.resident, stats.host, stats.pinned, stats.host_bytes) == (0, 0, 0, 0)
    assert_all_free(bank)


def test_batches_that_need_the_same_absent_capsule_bring_it_once(loaded, info):
    bank = Bank(loaded, CPU, slots=3)
    served = [add(bank, random_capsule(info, seed=seed)) for seed in range(4)]
    bank.pin(served)
    entry = bank.entries[served[3]]
    with bank.lock:
        entry.leases += 1
    bank.tiers.page_in([entry])
    bank.tiers.page_in([entry])
    assert bank.stats().resident == 3
    assert bank.stats().host == 1


@pytest.mark.gpu
def test_a_batch_gathered_on_a_gpu_answers_as_on_a_cpu(info):
    capsules = [
        random_capsule(info, labels=2 + 7 * seed, length=1 + seed % 3, seed=seed)
        for seed in range(8)
    ]
    features = torch.randn(8, info.hidden_size)
    answers = []
    for device in (CPU, torch.device("cuda", 0)):
        bank = Bank(info, device, slots=8)
        served = [add(bank, capsule) for capsule in capsules]
        bank.pin(served)
        with bank.gather(served) as batch:
            assert {group.tensors["capsule"].device for group in batch.prompts.groups} == {device}
            answers.append(batch.heads.probabilities(features.to(device)))
    for on_cpu, on_gpu in zip(*answers, strict=True):
        assert on_gpu == pytest.approx(on_cpu, abs=1e-4)
