import gzip
import json
from pathlib import Path

import pytest

from capsules.errors import OptionError
from capsules.reproduce.suite import SUITES, absent, choose, single, suite
from capsules.template import Template
from tests.capsules.reproduce.sets import TASKS

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"

# The texts that SMoP's preprocessing makes of such rows.
PUBLISHED = {
    "boolq": ("boolq passage: P question: Q", {"passage": "P", "question": "Q"}),
    "cb": ("cb hyopthesis: H. premise: P", {"premise": "P", "hypothesis": "H"}),
    "copa": (
        "choice1: C choice2: D premise: P question: cause",
        {"premise": "P", "question": "cause", "choice1": "C", "choice2": "D"},
    ),
    "multirc": (
        "question: Q answer: A. paragraph: P",
        {"paragraph": "P", "question": "Q", "answer": "A"},
    ),
    "rte": ("rte sentence1: P sentence2: H", {"premise": "P", "hypothesis": "H"}),
    "wic": (
        "wic sentence1: S sentence2: T word: w",
        {"sentence1": "S", "sentence2": "T", "word": "w"},
    ),
    "trec": ("Why?", {"text": "Why?"}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_text_is_the_published_one(name):
    text, row = PUBLISHED[name]
    assert Template(TASKS[name].template).render(row) == text


def test_suites_hold_the_papers_sets():
    names = {name: [task.name for task in tasks] for name, tasks in SUITES.items()}
    assert names["superglue"] == ["boolq", "cb", "copa", "multirc", "rte", "wic"]
    assert names["csqa"] == ["csqa"]
    assert names["single"] == ["trec", "sst2"]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("boolq", ["False", "True"]),
        ("cb", ["entailment", "contradiction", "neutral"]),
        ("copa", ["choice1", "choice2"]),
        ("multirc", ["False", "True"]),
        ("rte", ["entailment", "not_entailment"]),
        ("wic", ["False", "True"]),
    ],
)
def test_label_numbers_are_those_of_the_published_files(name, numbers):
    task = TASKS[name]
    assert [task.word(str(number)) for number in range(len(numbers))] == numbers
    assert [task.word(word) for word in numbers] == numbers


def test_metrics_are_those_of_superglue():
    metrics = {task.name: task.metric for task in suite("superglue")}
    special = {name: metric for name, metric in metrics.items() if metric != "accuracy"}
    assert special == {"cb": "accuracy-and-f1", "multirc": "f1a"}


def test_named_sets_keep_the_order_of_the_suite():
    assert [task.name for task in choose("superglue", ["wic", "cb"])] == ["cb", "wic"]
    assert choose("csqa", []) == SUITES["csqa"]


def test_single_takes_any_set():
    assert [task.name for task in choose("single", ["snips", "trec"])] == ["trec", "snips"]
    assert single("snips").template == "{text}"
    with pytest.raises(OptionError, match="cannot name a set"):
        choose("single", ["../cb"])


def test_unknown_names_are_told_with_the_known_ones():
    with pytest.raises(OptionError, match="superglue, csqa, single"):
        choose("glue", [])
    with pytest.raises(OptionError, match=r"it has: boolq, cb, .*trec is in the suite single"):
        choose("superglue", ["trec"])
    with pytest.raises(OptionError, match="Any set of single texts"):
        choose("csqa", ["mine"])


def test_absent_set_is_told_with_its_source_and_a_row(tmp_path):
    reason = absent(TASKS["multirc"], tmp_path / "multirc")
    assert "super.gluebenchmark.com" in reason
    row = json.loads(reason[reason.index("{") :])
    assert list(row) == ["question", "answer", "paragraph", "label"]


@pytest.mark.parametrize("name", sorted(TASKS))
def test_real_files_have_the_columns(name):
    path = DATA / name / "train.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    with gzip.open(path, "rt") as lines:
        row = json.loads(next(lines))
    task = TASKS[name]
    assert set(task.fields) <= row.keys()
    assert task.labels is None or row["label"] in task.labels
