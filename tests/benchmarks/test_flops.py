from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.errors import WrongMachineError
from benchmarks.flops import inner_width, work_of
from capsules.backbones.load import load


@pytest.fixture
def loaded(backbone):
    return load(backbone, device="cpu")


def test_work_is_what_torch_counts(loaded):
    rows, positions = 3, 11
    ids = torch.ones(rows, positions, dtype=torch.int64)
    model = loaded.backbone.model
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        # Attention in its plain form, whose products are counted on a CPU.
        model.set_attn_implementation("eager")
        model(input_ids=ids)
    assert work_of(loaded).of([positions] * rows) == counter.get_total_flops()


def test_rows_are_counted_each_with_its_own_length(loaded):
    work = work_of(loaded)
    assert work.of([3, 5]) == work.of([3]) + work.of([5])
    assert work.of([8]) > work.of([3, 5])
    assert inner_width(loaded) == 64


def test_other_families_are_not_counted(loaded):
    decoder = replace(loaded, info=replace(loaded.info, family="decoder-only"))
    with pytest.raises(WrongMachineError, match="encoders on a CPU"):
        work_of(decoder)
