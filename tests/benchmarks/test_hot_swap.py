import json
from dataclasses import replace
from typing import Any, cast

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.hot_swap import (
    GOLDEN,
    PROVING,
    QUICK,
    QUIET,
    SWAPPING,
    Bench,
    Stretch,
    compared,
    counted,
    measure,
    summary,
)
from benchmarks.swaps.fleet import Fleet, name_of
from benchmarks.swaps.records import Reply, Traffic
from capsules.artefact.file import digest, parse
from capsules.backbones.load import load

TEXTS = ("a short one", "something that is rather longer than that", "third")


@pytest.fixture(scope="module")
def fleet(backbone):
    fleet = Fleet(load(backbone, device="cpu"), tasks=3, vectors=2, texts=TEXTS)
    for task in (0, 0, 0, 1, 2):
        fleet.make(task)
    return fleet


def row(fleet, number, text, **changes):
    """What a server answers with a version of the first task."""
    name = next(d for d, made in fleet.number_of.items() if made == (0, number))
    probs = fleet.probabilities(0, text, number, number + 1)[0].tolist()
    return {"task": name_of(0), "digest": name, "probs": probs, **changes}


class TestFleet:
    def test_a_version_is_a_file_of_its_own(self, fleet):
        made = [fleet.make(1) for _ in range(2)]
        assert len({one.digest for one in made}) == 2
        for one in made:
            assert digest(one.data) == one.digest
            assert parse(one.data).manifest.task == "task-00001"

    def test_golden_examples_record_what_the_version_answers(self, fleet):
        made = fleet.make(2, golden=2)
        golden = parse(made.data).manifest.golden
        assert [example.inputs["text"] for example in golden] == [TEXTS[2], TEXTS[0]]
        expected = fleet.probabilities(2, 2, made.number, made.number + 1)[0]
        assert golden[0].probs == pytest.approx(expected, abs=1e-6)
        assert golden[0].label == f"label-{expected.argmax()}"

    def test_a_version_answers_by_its_vectors_and_its_bias(self, fleet):
        (first, second, third) = fleet.probabilities(0, 1, 0, 3)
        assert abs(first - second).max() > 0.05
        assert abs(first - third).max() > 0.05
        assert (fleet.probabilities(0, 2, 0, 1)[0] != first).any()

    def test_the_answer_of_the_version_that_is_named_is_not_mixed(self, fleet):
        for number in range(3):
            assert not fleet.is_mixed(row(fleet, number, 1), 0, 1)

    @pytest.mark.parametrize(
        "changes",
        [{"digest": "0" * 64}, {"task": "task-00001"}, {"probs": [1 / 6] * 6}],
        ids=lambda changes: next(iter(changes)),
    )
    def test_anything_else_is_mixed(self, fleet, changes):
        assert fleet.is_mixed(row(fleet, 1, 1, **changes), 0, 1)

    def test_the_probabilities_of_another_version_are_mixed(self, fleet):
        other = row(fleet, 2, 1)["probs"]
        assert fleet.is_mixed(row(fleet, 1, 1, probs=other), 0, 1)


def test_replies_are_counted_by_what_they_are(fleet):
    nothing = cast(Any, None)
    bench = Bench(server=nothing, traffic=nothing, fleet=fleet, sizes=QUICK, folder=nothing)
    good = json.dumps({"data": [row(fleet, 1, 1)]})
    bad = json.dumps({"data": [row(fleet, 1, 2)]})
    for status, body in ((200, good), (200, bad), (503, "busy"), (0, "hung up")):
        bench.check(Reply(request=0, status=status, ms=1.0, body=body), 0, 1)
    for status in (201, 422):
        bench.check_upload(Reply(request=0, status=status, ms=1.0, body="why"))
    assert bench.failures == [
        "a classification got 503: busy",
        "a classification got 0: hung up",
        "an upload got 422: why",
    ]
    assert bench.mixed == [bad]
    assert [(one.name, one.value, one.met) for one in counted(bench)] == [
        ("failed requests", 3, False),
        ("mixed replies", 1, False),
        ("swaps", 1, None),
        ("classifications that were checked", 4, None),
    ]


def test_a_window_comes_to_rates_and_percentiles():
    replies = tuple(Reply(request=0, status=200, ms=ms, body="") for ms in range(1, 101))
    found = summary(Traffic(seconds=4, replies=replies, uploads=()))
    assert (found.rate, found.p50, found.upload_rate) == (25.0, 50.5, 0.0)
    assert found.p99 == pytest.approx(99.01)
    uploads = tuple(Reply(request=0, status=201, ms=ms, body="") for ms in (1, 3))
    found = summary(Traffic(seconds=4, replies=replies, uploads=uploads))
    assert (found.upload_rate, found.upload_p50) == (0.5, 2.0)
    with pytest.raises(BenchmarkError, match="without a reply"):
        summary(Traffic(seconds=4, replies=(), uploads=()))


def test_windows_with_uploads_are_held_against_those_without():
    quiet = Stretch(rate=100, p50=1, p99=10)
    swapping = Stretch(rate=90, p50=1, p99=10.5, upload_rate=50, upload_p50=1, upload_p99=2)
    figures = compared(
        {
            QUIET: [quiet] * 3,
            SWAPPING: [swapping] * 3,
            PROVING: [replace(swapping, p99=20)] * 3,
        }
    )
    assert [one.value for one in figures] == [1.05, 0.9, 50, 2, 2.0, 0.9, 50, 2]
    assert [one.met for one in figures if one.goal] == [True]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_server_swaps_without_a_failed_or_mixed_reply(context):
    found = measure(context)
    values = {one.name: one.value for one in found.figures}
    assert values["failed requests"] == values["mixed replies"] == 0
    assert values["swaps"] == len(GOLDEN) * QUICK.uploads * (QUICK.rounds + 1)
    assert values["classifications that were checked"] > 0
