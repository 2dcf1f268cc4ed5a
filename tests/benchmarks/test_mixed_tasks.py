from collections import Counter

import pytest

from benchmarks.engine_overhead import BARE, LONGER, MIXED
from benchmarks.mixed_tasks import BATCH, QUICK, UNIFORM, ZIPF, draw, measure, set_up
from benchmarks.texts import load_texts
from capsules.backbones.load import load
from capsules.executors.torch import TorchExecutor


def test_every_number_of_tasks_is_measured(context):
    findings = measure(context)
    assert [(one.case, one.side, one.unit) for one in findings.series] == [
        ("1 task", UNIFORM, "texts/s"),
        ("40 tasks", UNIFORM, "texts/s"),
        ("40 tasks", ZIPF, "texts/s"),
        *((BATCH, side, "ms") for side in (BARE, LONGER, MIXED)),
    ]
    for one in findings.series:
        assert len(one.samples) == (QUICK.batch_rounds if one.case == BATCH else QUICK.rounds)
        assert min(one.samples) > 0
    assert [one.name for one in findings.figures if one.goal is not None] == [
        "40 tasks, uniform / 1 task: texts a second",
        f"{BATCH}: bare / mixed",
    ]
    assert findings.options["executor"] == "torch"


def test_engines_hold_as_many_capsules_as_there_are_tasks(context, backbone):
    loaded = load(backbone, device="cpu")
    with set_up(context, QUICK, loaded, TorchExecutor(loaded.backbone)) as bench:
        held = {
            count: started.engine.bank.stats().resident for count, started in bench.started.items()
        }
        assert held == {count: count for count in QUICK.tasks}
        texts = load_texts(QUICK.requests, None).texts
        assert bench.round(40, ZIPF, texts, 3, 0) > 0


def test_tasks_are_drawn_alike_or_a_few_of_them_much():
    uniform = Counter(draw(10, UNIFORM, 20_000, 0))
    assert set(uniform) == set(range(10))
    assert max(uniform.values()) < 1.2 * min(uniform.values())
    zipf = Counter(draw(10, ZIPF, 20_000, 0))
    assert zipf[0] / zipf[1] == pytest.approx(2**1.1, rel=0.1)
    assert zipf[0] / zipf[9] == pytest.approx(10**1.1, rel=0.2)


def test_draws_differ_from_round_to_round_alone():
    assert draw(100, UNIFORM, 50, 1) == draw(100, UNIFORM, 50, 1)
    assert draw(100, UNIFORM, 50, 1) != draw(100, UNIFORM, 50, 2)
    assert draw(1, UNIFORM, 3, 0) == [0, 0, 0]
