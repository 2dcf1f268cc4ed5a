import json
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from transformers import AutoTokenizer

from benchmarks import rivals as module
from benchmarks.context import SERVE
from benchmarks.errors import BenchmarkError
from benchmarks.rival_servers.catalogue import (
    INFINITY,
    INFINITY_EAGER,
    INFINITY_ONNX,
    LITSERVE,
    MOSEC,
    RIVALS,
    Rival,
)
from benchmarks.rival_servers.model_folder import LABELS, write_model
from benchmarks.rival_servers.processes import hold, let_go, running_rival
from benchmarks.rivals import (
    EIGHT,
    ENGINE,
    EXECUTOR,
    IDENTICAL,
    MANY,
    ONE,
    PEFT,
    PEFT_BASE,
    PIPELINE_BATCH,
    PIPELINE_ONE,
    QUICK,
    case,
    compare,
    figures_of,
    measure,
)
from benchmarks.rivals_http import OURS, OURS_INT8, Round, compare_scores, ours
from benchmarks.rivals_in_process import Ours, Transformers
from capsules.backbones.load import load

FAKE_SERVER = (sys.executable, "-m", "tests.support.fake_server")
FAKE = Rival(
    name="fake",
    environment=Path(sys.prefix),
    program="python",
    arguments=lambda port: ("-m", "tests.support.fake_rival", str(port)),
    path="/classify",
    body=lambda text: json.dumps({"text": text}),
    scores=json.loads,
)
ABSENT = replace(FAKE, name="absent", environment=Path("nowhere"))


@pytest.fixture(scope="module")
def info(backbone):
    return load(backbone, device="cpu").info


@pytest.fixture(scope="module")
def model(info, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_model(info, folder)
    return folder


@contextmanager
def transformers_here(folder):
    yield Transformers(folder)


@contextmanager
def ours_here(*arguments):
    before = torch.get_num_threads()
    ours = Ours(*arguments)
    try:
        yield ours
    finally:
        ours.stop()
        torch.set_num_threads(before)  # the model thread set it for the whole process


@pytest.mark.timeout(180)
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_everyone_is_measured_in_every_case_and_who_is_absent_is_told(context, monkeypatch):
    # Two processes fewer to start, each of which imports torch and PEFT.
    monkeypatch.setattr(module, "transformers_side", transformers_here)
    monkeypatch.setattr(module, "our_side", ours_here)
    check(compare(replace(context, serve=FAKE_SERVER), [FAKE, ABSENT], QUICK))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_everyone_is_measured_in_a_process_of_their_own(context):
    assert context.serve == SERVE
    check(compare(context, [FAKE, ABSENT], QUICK))


def check(findings):
    over_http = {FAKE.name, OURS}
    sides = {
        case(ONE): {*over_http, PIPELINE_ONE, ENGINE},
        case(EIGHT): over_http,
        case(MANY): {*over_http, PIPELINE_BATCH, PEFT, ENGINE},
        IDENTICAL: {PEFT, PEFT_BASE, EXECUTOR},
    }
    rates = {(one.case, one.side) for one in findings.series if one.unit == "texts/s"}
    assert rates == {(where, side) for where, names in sides.items() for side in names}
    latencies = {(one.case, one.side) for one in findings.series if one.unit == "ms, p99"}
    assert latencies == {
        (case(callers), side) for callers in (ONE, EIGHT, MANY) for side in over_http
    }
    assert all(min(one.samples) > 0 for one in findings.series)
    assert [one.name for one in findings.figures if one.goal is not None] == [
        f"{case(MANY)}: {OURS} / the best rival, fake",
        f"{case(MANY)}: {OURS} / {PIPELINE_BATCH}",
        f"{case(ONE)}: {OURS} / the best rival, fake",
        f"{case(MANY)}: {ENGINE} / {PEFT}",
        f"{IDENTICAL}: {EXECUTOR} / {PEFT}",
    ]
    notes = "\n".join(findings.notes)
    assert "absent was not measured" in notes
    assert "make rivals-install" in notes
    assert "fake was not measured" not in notes
    assert "a mixed batch of two sizes fails with RuntimeError" in notes


def test_all_rivals_are_asked_for(context, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "compare", lambda *given: asked.append(given))
    measure(context)
    assert asked == [(context, RIVALS, QUICK)]


def test_best_rival_is_the_goal_and_no_pair_is_told_twice():
    everyone = (
        *(OURS, OURS_INT8, ENGINE, "slow", INFINITY, INFINITY_EAGER),
        *(PIPELINE_ONE, PIPELINE_BATCH, PEFT),
    )
    rates = {
        case(ONE): (12.0, 18.0, 15.0, 3.0, 4.0, 2.0, 5.0, 5.0, 5.0),
        case(EIGHT): (12.0, 18.0, 15.0, 3.0, 4.0, 2.0, 5.0, 5.0, 5.0),
        case(MANY): (12.0, 18.0, 15.0, 6.0, 4.0, 2.0, 4.0, 4.0, 3.0),
    }
    measured = {
        where: {name: [Round(rate=rate)] for name, rate in zip(everyone, given, strict=True)}
        for where, given in rates.items()
    }
    measured[IDENTICAL] = {side: [Round(rate=4.0)] for side in (EXECUTOR, PEFT, PEFT_BASE)}
    figures = list(figures_of(measured, ["slow", INFINITY, INFINITY_EAGER]))
    held = {one.name: one.value for one in figures if one.goal is not None}
    assert held[f"{case(MANY)}: {OURS} / the best rival, slow"] == 2.0
    assert held[f"{case(ONE)}: {OURS} / the best rival, {INFINITY}"] == 3.0
    assert held[f"{case(ONE)}: {OURS} / {INFINITY}"] == 3.0
    beside = {one.name: one.value for one in figures}
    assert beside[f"{case(MANY)}: {OURS_INT8} / the best rival, slow"] == 3.0
    assert len(beside) == len(figures)


def test_rival_that_runs_another_model_is_refused():
    expected = [{"a": 0.25, "b": 0.75}]
    compare_scores(FAKE, ['{"a": 0.25, "b": 0.75}'], expected)
    for reply in ('{"a": 0.26, "b": 0.74}', '{"a": 0.25, "c": 0.75}'):
        with pytest.raises(BenchmarkError, match=r"fake answered .* not run the same model"):
            compare_scores(FAKE, [reply], expected)


def test_rival_runs_inside_can_be_held_and_is_gone_afterwards(model, tmp_path):
    with running_rival(FAKE, model, tmp_path) as (process, _):
        hold(process)
        # A signal takes effect when the kernel next looks.
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        let_go(process)
        while process.status() == psutil.STATUS_STOPPED:
            time.sleep(0.01)
        hold(process)
    assert not process.is_running()


def test_rival_that_ends_is_told_with_its_log(model, tmp_path):
    broken = replace(FAKE, arguments=lambda _: ("-m", "tests.support.fake_rival", "broken"))
    with (
        pytest.raises(BenchmarkError, match=r"(?s)ended with status 1.*no luck today"),
        running_rival(broken, model, tmp_path),
    ):
        raise AssertionError("it cannot have started")


def test_graph_that_cannot_be_written_is_told(model, tmp_path):
    # The project's own environment has no optimum.
    wanting = replace(FAKE, onnx=True)
    with (
        pytest.raises(
            BenchmarkError, match=r"(?s)ONNX graph for fake could not be written.*optimum"
        ),
        running_rival(wanting, model, tmp_path),
    ):
        raise AssertionError("it cannot have started")


def test_model_is_the_same_each_time_and_as_long_as_the_backbone(info, model, tmp_path):
    write_model(info, tmp_path)
    name = "model.safetensors"
    assert (tmp_path / name).read_bytes() == (model / name).read_bytes()
    assert len(json.loads((model / "config.json").read_text())["id2label"]) == LABELS
    assert AutoTokenizer.from_pretrained(model).model_max_length == info.max_tokens


def test_catalogue_says_how_each_is_started_and_asked():
    assert [one.name for one in RIVALS] == [
        INFINITY,
        INFINITY_EAGER,
        INFINITY_ONNX,
        LITSERVE,
        MOSEC,
    ]
    for one in RIVALS:
        assert "8123" in one.arguments(8123)
        assert "some text" in one.body("some text")
    reply = json.dumps({"data": [[{"label": "a", "score": 0.5}, {"label": "b", "score": 0.5}]]})
    assert RIVALS[0].scores(reply) == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("executor", "expected"),
    [("torch", [OURS]), ("auto", [OURS, OURS_INT8]), ("onnxruntime", [OURS, OURS_INT8])],
)
def test_integers_are_served_where_the_executor_has_them(context, executor, expected):
    assert list(ours(replace(context, executor=executor))) == expected
