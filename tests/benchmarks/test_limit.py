from contextlib import contextmanager

import pytest

from benchmarks import limit as module
from benchmarks.flops import Work
from benchmarks.limit import (
    BOUND,
    ENGINE,
    INT8_LEFT_OUT,
    LANE_LIBRARIES,
    QUICK,
    REAL,
    SHORTER,
    Found,
    Ours,
    figures_of,
    measure,
    on_one_core,
)
from benchmarks.products import LIBRARIES, ONNXRUNTIME, TORCH
from benchmarks.sampling import seconds
from benchmarks.texts import load_texts


@contextmanager
def here(build, *args):
    """Sides are built here: starting a process takes longer than all that is measured."""
    side = build(*args)
    yield side
    if isinstance(side, Ours):
        side.started.stop()


@pytest.fixture
def ours(backbone):
    with here(Ours, backbone, "torch", "none", QUICK) as side:
        yield side


def test_everything_is_measured_in_every_round(context, monkeypatch):
    monkeypatch.setattr(module, "child", here)
    monkeypatch.setattr("benchmarks.products.OPERATIONS", 1e5)
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    findings = measure(context)
    cases = {(one.case, one.side) for one in findings.series if one.unit == "GFLOP/s"}
    shapes = ("16 x 32 x 32", "16 x 32 x 64", "16 x 64 x 32", "64 x 64 x 64")
    lane = ("8 x 32 x 96", "8 x 32 x 32", "8 x 32 x 64", "8 x 64 x 32")
    assert cases == {
        *((shape, library) for shape in shapes for library in LIBRARIES),
        *((on_one_core(shape), library) for shape in lane for library in LANE_LIBRARIES),
        (SHORTER, "executor"),
        (REAL, "executor"),
    }
    sides = [one.side for one in findings.series if one.unit == "texts/s"]
    assert sides == [ENGINE, BOUND]
    for one in findings.series:
        assert len(one.samples) == QUICK.rounds
        assert min(one.samples) > 0
    assert INT8_LEFT_OUT in findings.notes
    assert findings.options["FLOPs of a position"] == 3 * (8 * 32**2 + 4 * 32 * 64)


def test_figures_are_held_against_the_fastest_product_of_the_round():
    products = {("a", "x"): [100.0, 50.0, 100.0], ("b", "y"): [60.0, 400.0, 60.0]}
    found = Found(
        products=products,
        lane={},
        lane_seconds={TORCH: [3.0, 1.0, 3.0], ONNXRUNTIME: [4.0, 1.0, 4.0]},
        rates={SHORTER: [60.0, 30.0, 60.0], REAL: [50.0, 25.0, 50.0]},
        texts={ENGINE: [150.0, 75.0, 150.0]},
        flops=[0.5e9, 0.5e9, 0.5e9],
    )
    assert found.ceiling == ("a", "x")
    assert found.bound == [200.0, 100.0, 200.0]
    values = {one.name: (one.value, one.met) for one in figures_of(found)}
    assert values == {
        f"{SHORTER}: executor / ceiling (a, x)": (0.6, True),
        f"{REAL}: executor / ceiling (a, x)": (0.5, None),
        f"{on_one_core('products of a batch')}: rate of {ONNXRUNTIME} / {TORCH}": (0.75, None),
        f"texts a second, engine in {ENGINE} / {BOUND}": (0.75, True),
    }


def test_only_the_work_on_real_positions_counts(ours, monkeypatch):
    monkeypatch.setattr(module, "seconds", lambda work: seconds(work) and 1.0)
    rows, tokens = QUICK.shape.rows, QUICK.shape.tokens
    counted = QUICK.batches * rows * (tokens + 1)
    assert ours.even(Work(linear=1, attention=0), 0) * 1e9 == pytest.approx(counted / QUICK.batches)
    texts = load_texts(QUICK.batches * QUICK.waiting, None).texts
    assert 0 < ours.real(Work(linear=1, attention=0), texts) * 1e9 < 1000
    assert ours.bank.stats().pinned == 0


def test_bound_is_of_the_texts_alone(ours):
    assert (
        ours.text_flops(Work(linear=10, attention=1), ["w1 w2", "w1 w2 w3 w4"])
        == (10 * (4 + 6) + 4**2 + 6**2) / 2
    )
