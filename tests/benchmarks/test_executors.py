from contextlib import contextmanager
from dataclasses import replace

import pytest

from benchmarks import executors as module
from benchmarks.exams import Exam
from benchmarks.executors import (
    ARRIVAL,
    BFLOAT16,
    CAPSULES,
    COMPILED,
    EAGER,
    EVEN,
    FULL,
    INT8,
    PACKED,
    QUICK,
    SIDES,
    SINGLE,
    SORTED,
    Side,
    cases_of,
    chosen,
    has_fast_bfloat16,
    measure,
    set_up,
)
from benchmarks.random_capsules import random_capsules
from benchmarks.texts import load_texts
from capsules.artefact.file import dump
from capsules.backbones.load import load
from capsules.executors.torch import TorchExecutor
from capsules.model import pad


@contextmanager
def here(build, *args):
    yield build(*args)


@pytest.fixture
def loaded(backbone):
    return load(backbone, device="cpu")


@pytest.fixture
def in_this_process(monkeypatch):
    """Sides are built here: starting a process takes longer than all that is measured."""
    monkeypatch.setattr(module, "child", here)


def exam_for(info):
    capsule = next(random_capsules(info, 1))
    return Exam("task", dump(capsule), ("a b", "c", "d e f"), (0, 1, 0))


def test_every_side_is_measured_in_every_case(context, loaded, in_this_process, monkeypatch):
    monkeypatch.setattr(module, "has_fast_bfloat16", lambda _: True)
    monkeypatch.setattr(module, "exams", lambda *_: ([exam_for(loaded.info)], ["a note"]))
    findings = measure(context)
    speed = [one for one in findings.series if one.unit != "% right"]
    assert {(one.case, one.side, one.unit) for one in speed} == {
        (case, side, unit)
        for case in (ARRIVAL, SORTED, SINGLE, EVEN)
        for side in (EAGER, BFLOAT16)
        for unit in ("texts/s", "ms/batch")
    }
    for one in speed:
        assert len(one.samples) == QUICK.rounds
        assert min(one.samples) > 0
    graded = {one.side for one in findings.series if one.unit == "% right"}
    assert graded == {EAGER, BFLOAT16}
    assert f"{BFLOAT16}: largest difference of a probability" in {
        one.name for one in findings.figures
    }
    left_out = [note for note in findings.notes if "left out" in note]
    assert [note.split("`")[1] for note in left_out] == [COMPILED, PACKED, INT8]
    assert "a note" in findings.notes
    assert findings.options[f"padded / real tokens, {SINGLE}"] == 1.0


@pytest.mark.slow
def test_side_has_a_process_of_its_own(context, loaded):
    cases = cases_of(loaded, load_texts(QUICK.rounds * QUICK.batches * 32, None).texts, QUICK)
    with set_up(context, {EAGER: SIDES[EAGER]}) as running:
        running[EAGER].take(cases[SINGLE])
        assert running[EAGER].run(0) > 0
        assert not isinstance(running[EAGER], Side)


def test_cases_hold_the_same_texts_in_other_batches(loaded):
    texts = load_texts(QUICK.rounds * QUICK.batches * 32, None).texts
    cases = cases_of(loaded, texts, QUICK)
    for number in range(QUICK.rounds):
        arrived = [row for batch in cases[ARRIVAL][number] for row in batch]
        ordered = [row for batch in cases[SORTED][number] for row in batch]
        assert sorted(arrived, key=repr) == sorted(ordered, key=repr)
        lengths = [len(encoding.input_ids) for encoding, _ in ordered]
        assert lengths == sorted(lengths)
        assert [len(batch) for batch in cases[SINGLE][number]] == [1] * QUICK.singles
        assert {len(e.input_ids) for batch in cases[EVEN][number] for e, _ in batch} == {
            min(64, loaded.info.max_tokens - 2)
        }
        assert {number for _, number in arrived} <= set(range(CAPSULES))


def test_side_gives_the_answers_of_its_capsule(backbone, loaded):
    side = Side(backbone, SIDES[EAGER])
    one = exam_for(loaded.info)
    assert len(side.served) == CAPSULES == side.bank.stats().pinned
    answers = side.answers(one.artefact, one.texts)
    assert [sum(row) for row in answers] == pytest.approx([1.0] * 3)
    assert side.answers(one.artefact, one.texts[:1])[0] == pytest.approx(answers[0], abs=1e-5)
    assert side.bank.stats().resident == CAPSULES


def test_executor_is_given_each_rows_own_capsule(backbone, loaded, monkeypatch):
    side = Side(backbone, SIDES[EAGER])
    seen = []
    features = TorchExecutor.features

    def watching(self, tokens, prompts, reading=None):
        seen.append((tokens, prompts))
        return features(self, tokens, prompts, reading)

    monkeypatch.setattr(TorchExecutor, "features", watching)
    encodings = loaded.tokeniser.encode(["a b c", "d"], 10)
    assert side.batch([(encodings[0], 1), (encodings[1], 4)]) > 0
    ((tokens, prompts),) = seen
    assert tokens.input_ids.tolist() == pad(encodings, 0).input_ids.tolist()
    assert [group.variant.name for group in prompts.groups] == ["prepending", "task-only"]


def test_what_cannot_be_measured_is_left_out_with_the_reason(context, monkeypatch):
    monkeypatch.setattr(module, "has_fast_bfloat16", lambda _: False)
    monkeypatch.setattr("shutil.which", lambda _: None)
    sides, notes = chosen(replace(context, executor="auto"), FULL)
    assert list(sides) == [EAGER, PACKED, INT8]
    assert "no C++ compiler" in notes[0]
    assert "amx_bf16" in notes[1]


def test_everything_is_measured_where_it_can_be(context, monkeypatch):
    monkeypatch.setattr(module, "has_fast_bfloat16", lambda _: True)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/g++")
    assert chosen(replace(context, executor="auto"), FULL) == (SIDES, [])


@pytest.mark.parametrize(
    ("told", "expected"), [("flags: avx2 amx_bf16 x", True), ("flags: avx2", False), (None, False)]
)
def test_processor_tells_whether_bfloat16_is_fast(tmp_path, told, expected):
    path = tmp_path / "cpuinfo"
    if told is not None:
        path.write_text(told)
    assert has_fast_bfloat16(path) is expected
