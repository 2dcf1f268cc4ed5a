from dataclasses import replace

import pytest
import torch

from benchmarks.errors import WrongMachineError
from benchmarks.gpu import BARE, ENGINE, MODELS, QUICK, build, measure, set_up
from benchmarks.random_capsules import label_name
from tests.support.configurations import PUBLISHED

CPU = torch.device("cpu")


def test_every_model_is_measured_at_every_number_of_callers(context):
    findings = measure(context)
    cases = [f"{name}, {callers} at a time" for name in MODELS for callers in QUICK.requests]
    assert {(one.case, one.side) for one in findings.series} == {
        (case, side) for case in cases for side in (ENGINE, BARE, "p50", "p95")
    }
    for one in findings.series:
        assert len(one.samples) == QUICK.rounds
        assert min(one.samples) > 0
    held = [one.name for one in findings.figures if one.goal is not None]
    assert held == [f"{name}, 4 at a time: texts a second, engine / bare" for name in MODELS]
    assert "quick run shrinks" in findings.notes[-1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_models_of_full_size_are_for_a_gpu(context):
    with pytest.raises(WrongMachineError, match="make bench-gpu"):
        measure(replace(context, quick=False))


@pytest.mark.parametrize("name", MODELS)
def test_models_have_the_published_sizes(name):
    loaded = build(name, torch.device("meta"), tiny=False)
    parameters = loaded.info.parameters
    if name in PUBLISHED:
        assert parameters == PUBLISHED[name].parameters
    else:
        assert round(parameters / 1e6) == 205
    assert loaded.backbone.dtype == torch.bfloat16


@pytest.mark.parametrize("name", MODELS)
def test_words_and_labels_are_a_token_each(name):
    loaded = build(name, CPU, tiny=True)
    (encoding,) = loaded.tokeniser.encode(["the bank of nowhere"], 10)
    the, bank, of, unknown = encoding.input_ids
    assert len({the, bank, of, unknown, loaded.tokeniser.pad_id}) == 5
    assert loaded.tokeniser.encode(["elsewhere"], 10)[0].input_ids == (unknown,)
    labels = [loaded.tokeniser.word(label_name(number)) for number in range(151)]
    assert len(set(labels)) == 151
    assert {len(label) for label in labels} == {1}


def test_bare_passes_are_of_the_batches_that_the_engine_formed():
    with set_up("T5-Base", CPU, QUICK) as bench:
        (found,) = bench.rounds(["the bank"] * 12, 4, 1)
        batches = bench.executor.batches
        assert sum(len(tokens) for tokens, _ in batches) == 12
        assert found.rows == 12 / len(batches)
        assert len(found.latencies_ms) == 12
        assert 0 < found.percentile(50) <= found.percentile(95)
