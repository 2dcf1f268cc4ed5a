"""The training benchmark at tiny sizes, and what its comparison rests on."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.errors import BenchmarkError
from benchmarks.training import (
    BUCKETED,
    RANDOM,
    SIDES,
    Stepper,
    lengths,
    measure,
    pairs,
    resident_mebibytes,
    shuffled,
    text_length,
)
from capsules.backbones.load import load

pytest.importorskip(
    "peft", reason="the baselines need PEFT: pip install 'capsule-server[research]'"
)


@pytest.mark.slow
def test_every_side_is_measured(context) -> None:
    findings = measure(context)
    assert {(one.case, one.side) for one in findings.series} == {
        *(("step", side) for side in SIDES),
        ("epoch", BUCKETED),
        ("epoch", RANDOM),
    }
    assert min(min(one.samples) for one in findings.series) > 0
    assert [one.name for one in findings.figures if one.goal] == [
        f"{RANDOM} / {BUCKETED} batches, time of the same rows"
    ]
    assert sum("peak memory" in one.name for one in findings.figures) == len(SIDES) + 1


@pytest.mark.parametrize("side", SIDES)
def test_a_step_trains_what_is_learned_and_never_the_backbone(backbone: str, side: str) -> None:
    loaded = load(backbone, device="cpu")
    before = {name: value.clone() for name, value in loaded.backbone.model.state_dict().items()}
    step = Stepper(loaded, side)
    start = step.learner.snapshot()
    # LoRA's first factor has no gradient before the second has moved.
    for _ in range(2):
        step(loaded.tokeniser.encode(["w1 w2", "w3", "w4 w5 w6"], 32))
    changed = [
        name for name, value in step.learner.snapshot().items() if not value.equal(start[name])
    ]
    assert sorted(changed) == sorted(start)
    assert not any(one.requires_grad for one in loaded.backbone.model.parameters())
    after = loaded.backbone.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_texts_leave_room_for_what_every_side_puts_beside_them(backbone: str) -> None:
    loaded = load(backbone, device="cpu")
    steps = [Stepper(loaded, side) for side in SIDES]
    longest = text_length(loaded, steps)
    slots = [step.learner.slots for step in steps]
    assert min(slots) == 0
    assert longest == loaded.backbone.max_tokens - max(slots)
    for step in steps:
        step(loaded.tokeniser.encode(["w1 " * 500], longest))
    roomy = replace(loaded, backbone=Roomy())  # type: ignore[arg-type]
    assert text_length(roomy, steps) == 256


class Roomy:
    """All of a backbone that counts here."""

    max_tokens = 512


def test_both_orders_have_every_row_once(backbone: str) -> None:
    assert sorted(row for batch in shuffled(50, 8) for row in batch) == list(range(50))
    encodings = load(backbone, device="cpu").tokeniser.encode(["w1", "w2 w3"], 32)
    assert lengths(encodings) == [3, 4]


def test_pairs_are_the_data_sets_or_made_up(tmp_path: Path) -> None:
    source, texts = pairs(None, 200)
    assert "made-up" in source
    assert all(15 <= len(text.split()) <= 119 for text in texts)
    (tmp_path / "rte").mkdir()
    with gzip.open(tmp_path / "rte" / "train.jsonl.gz", "wt") as file:
        file.write(json.dumps({"premise": "A", "hypothesis": "B"}) + "\n")
    assert pairs(tmp_path, 1) == ("train rows of rte", ["rte premise: A hypothesis: B"])
    (tmp_path / "rte" / "train.jsonl.gz").write_bytes(b"nothing")
    with pytest.raises(BenchmarkError, match="cannot be read"):
        pairs(tmp_path, 1)


def test_memory_is_read_from_the_system() -> None:
    assert 1 < resident_mebibytes("VmRSS") <= resident_mebibytes("VmHWM")
    with pytest.raises(BenchmarkError, match="VmNonsense"):
        resident_mebibytes("VmNonsense")
