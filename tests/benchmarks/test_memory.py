from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from benchmarks.memory import (
    QUICK,
    Busy,
    Drift,
    Growth,
    Paging,
    Started,
    findings,
    measure,
    passing,
    random_text,
)
from capsules.artefact.file import parse
from capsules.backbones.load import load

MIB = 1024**2


def test_memory_is_set_against_the_bytes_of_the_files():
    starts = {1: 100, 10: 110, 100: 215}
    growth = Growth(
        started={count: [Started(rss * MIB, 1.5, 2.0)] for count, rss in starts.items()},
        added={1: 0, 10: 10 * MIB, 100: 100 * MIB},
    )
    assert [(one.value, one.met) for one in growth.figures()] == [
        (1.5, True),
        (1.0, None),
        (1.15, True),
    ]
    assert {(one.case, one.side, one.median) for one in growth.series()} >= {
        ("100 capsules", "RSS", 215.0),
        ("100 capsules", "bytes of the files added", 100.0),
        ("100 capsules", "loading", 1.5),
        ("1 capsules", "until ready", 2.0),
    }


@pytest.mark.parametrize(
    ("looks", "percent", "met"),
    [
        ([100] * 10, 0.0, True),
        ([100, 100, 900, 100, 100, 100, 100, 100, 101, 101], 1.0, True),
        (list(range(100, 110)), pytest.approx(7.96, abs=0.01), False),
        ([100, 90], -10.0, True),
    ],
)
def test_drift_is_between_the_ends(looks, percent, met):
    (figure,) = Drift("work", [look * MIB for look in looks]).figures()
    assert (figure.value, figure.met) == (percent, met)


def test_paging_is_set_against_tasks_that_are_there():
    paging = Paging(
        capsules=50,
        load_s=3.0,
        rss=160 * MIB,
        alone=100 * MIB,
        files=50 * MIB,
        device=10.0 * MIB,
        host=40.0 * MIB,
        few=[Busy(100.0, 0.0), Busy(200.0, 0.125)],
        all=[Busy(90.0, 0.75), Busy(180.0, 1.0)],
        drift=Drift("work", [100, 100]),
    )
    values = [(one.value, one.met) for one in paging.figures()]
    assert values == [
        (3.0, None),
        (1.2, None),
        (0.9, True),
        (0.875, None),
        (0.0625, None),
        (0.0, True),
    ]


def test_passing_capsules_are_of_no_task_that_is_stored(backbone):
    info = load(backbone, device="cpu").info
    tasks = [parse(data).manifest.task for data in islice(passing(info, 20), 3)]
    assert tasks == ["passing-20", "passing-21", "passing-22"]


def test_random_texts_have_any_number_of_words():
    random = Random(0)
    lengths = {len(random_text(random, 5).split()) for _ in range(200)}
    assert lengths == {1, 2, 3, 4, 5}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_of_real_servers_is_measured(context):
    found = measure(context)
    sides = {(one.case, one.side) for one in found.series}
    assert {(f"{count:,} capsules", "RSS") for count in QUICK.counts} <= sides
    brought_in = [one.value for one in found.figures if "brought in, a request" in one.name]
    assert brought_in[0] > brought_in[1] >= 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_any_size_can_be_measured(context):
    sizes = replace(QUICK, counts=(1, 3, 4), cycles=2, soak_s=0.2, window_s=0.1, paging_rounds=1)
    assert findings(context, sizes).options["capsules"] == [1, 3, 4]
