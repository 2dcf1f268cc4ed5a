import pytest

from benchmarks import engine_overhead as module
from benchmarks.engine_overhead import (
    BARE,
    INJECTED,
    LONGER,
    MIXED,
    QUICK,
    REAL_LENGTHS,
    Shape,
    longer,
    made_up,
    measure,
    real_batches,
    set_up,
)
from benchmarks.errors import BenchmarkError
from benchmarks.texts import load_texts
from capsules.backbones.load import load
from capsules.executors.torch import TorchExecutor
from capsules.model import pad
from service.engine.replies import inference_failed
from service.engine.worker import ModelThread


@pytest.fixture
def loaded(backbone):
    return load(backbone, device="cpu")


def test_every_side_is_measured_in_every_case(context):
    findings = measure(context)
    cases = [str(shape) for shape in QUICK.shapes] + [REAL_LENGTHS]
    assert {(one.case, one.side) for one in findings.series} == {
        (case, side) for case in cases for side in (BARE, LONGER, INJECTED, MIXED)
    }
    for one in findings.series:
        assert len(one.samples) == QUICK.rounds
        assert min(one.samples) > 0
    held = [one.name for one in findings.figures if one.goal is not None]
    assert held == [f"{case}: bare / mixed" for case in cases]
    assert findings.options["capsules"] == QUICK.capsules
    assert "made-up" in str(findings.options["texts"])


def test_made_up_batch_is_as_wide_as_asked_and_hardly_padded(loaded):
    batch = made_up(Shape(20, 10), loaded, seed=0)
    lengths = [len(one.input_ids) for one in batch]
    assert len(lengths) == 20
    assert max(lengths) == lengths[0] == 10
    assert min(lengths) >= 8
    assert len(set(lengths)) > 1
    assert batch == made_up(Shape(20, 10), loaded, seed=0)


def test_real_batches_are_what_the_batcher_picks(loaded):
    texts = load_texts(QUICK.rounds * QUICK.waiting, None).texts
    batches = real_batches(texts, QUICK.waiting, loaded, TorchExecutor(loaded.backbone))
    assert len(batches) == QUICK.rounds
    first = loaded.tokeniser.encode(texts[:1], loaded.info.max_tokens - 1)[0]
    assert batches[0][0] == first
    assert all(1 < len(batch) <= QUICK.waiting for batch in batches)


def test_longer_batch_has_one_more_real_token_in_each_row(loaded):
    tokens = pad(made_up(Shape(4, 8), loaded, seed=0), loaded.tokeniser.pad_id)
    more = longer(tokens)
    assert more.input_ids.shape == (4, 9)
    assert (more.attention_mask.sum(1) - tokens.attention_mask.sum(1)).tolist() == [1] * 4


def test_rows_have_different_capsules_and_leave_nothing_pinned(loaded):
    with set_up(loaded, TorchExecutor(loaded.backbone), QUICK.capsules) as bench:
        batch = made_up(Shape(6, 8), loaded, seed=0)
        assert len(set(bench.draw(6))) == 6
        assert bench.mixed(batch) > 0
        assert bench.injected(batch) > 0
        assert bench.engine.bank.stats().pinned == 0


def test_row_without_answer_spoils_the_measurement(loaded, monkeypatch):
    monkeypatch.setattr(
        ModelThread, "answers", lambda _, batch: [inference_failed() for _ in batch.rows]
    )
    with (
        set_up(loaded, TorchExecutor(loaded.backbone), QUICK.capsules) as bench,
        pytest.raises(BenchmarkError, match="got no answer"),
    ):
        bench.mixed(made_up(Shape(2, 8), loaded, seed=0))


def test_single_row_is_held_to_no_goal(context, monkeypatch):
    sizes = module.Sizes(capsules=2, shapes=(Shape(1, 8),), waiting=0, rounds=1)
    monkeypatch.setattr(module, "QUICK", sizes)
    assert [one.goal for one in measure(context).figures] == [None] * 5
