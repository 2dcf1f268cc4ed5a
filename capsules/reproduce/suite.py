"""The sets that are compared on, in the text-to-text formats of SMoP (EMNLP 2023).

The formats are those of its published preprocessing, to the letter, since published figures were
obtained with them: COPA and MultiRC without the set's name in front, a full stop after CB's
hypothesis and MultiRC's answer, and "hyopthesis" as it is spelt there. WiC's offsets are not used.
"""

from collections.abc import Sequence
from pathlib import Path

from capsules.artefact.manifest import TASK_NAME
from capsules.errors import OptionError
from capsules.reproduce.task import Task

SUPERGLUE_SOURCE = "SuperGLUE (super.gluebenchmark.com)"
TRUTHS = {"0": "False", "1": "True", "false": "False", "true": "True"}

SUPERGLUE = (
    Task(
        name="boolq",
        template="boolq passage: {passage} question: {question}",
        labels=("False", "True"),
        spellings=TRUTHS,
        published_rows=9427,
        source=SUPERGLUE_SOURCE,
    ),
    Task(
        name="cb",
        template="cb hyopthesis: {hypothesis}. premise: {premise}",
        metric="accuracy-and-f1",
        labels=("entailment", "contradiction", "neutral"),
        spellings={"0": "entailment", "1": "contradiction", "2": "neutral"},
        published_rows=250,
        source=SUPERGLUE_SOURCE,
    ),
    Task(
        name="copa",
        template="choice1: {choice1} choice2: {choice2} premise: {premise} question: {question}",
        labels=("choice1", "choice2"),
        spellings={"0": "choice1", "1": "choice2"},
        published_rows=400,
        source=SUPERGLUE_SOURCE,
    ),
    Task(
        name="multirc",
        template="question: {question} answer: {answer}. paragraph: {paragraph}",
        metric="f1a",
        labels=("False", "True"),
        spellings=TRUTHS,
        published_rows=27243,
        source=f"{SUPERGLUE_SOURCE}, a line for each answer of each question",
    ),
    Task(
        name="rte",
        template="rte sentence1: {premise} sentence2: {hypothesis}",
        labels=("entailment", "not_entailment"),
        spellings={"0": "entailment", "1": "not_entailment"},
        published_rows=2490,
        source=SUPERGLUE_SOURCE,
    ),
    Task(
        name="wic",
        template="wic sentence1: {sentence1} sentence2: {sentence2} word: {word}",
        labels=("False", "True"),
        spellings=TRUTHS,
        published_rows=5428,
        source=SUPERGLUE_SOURCE,
    ),
)
CSQA = (
    Task(
        name="csqa",
        # Not one of SMoP's sets; in the manner of its COPA.
        template="A: {A} B: {B} C: {C} D: {D} E: {E} question: {question}",
        labels=("A", "B", "C", "D", "E"),
        published_rows=9741,
        source="CommonsenseQA (www.tau-nlp.org/commonsenseqa)",
    ),
)


def single(name: str) -> Task:
    """A set of single texts, as they are.

    Raises:
        OptionError: the name cannot be one.
    """
    if not TASK_NAME.fullmatch(name):
        raise OptionError(
            f"{name!r} cannot name a set: use lower-case letters, digits, '.', '_' and '-'.",
            field="tasks",
        )
    return Task(name=name, template="{text}", has_test=True)


SUITES: dict[str, tuple[Task, ...]] = {
    "superglue": SUPERGLUE,
    "csqa": CSQA,
    "single": (single("trec"), single("sst2")),
}


def suite(name: str) -> tuple[Task, ...]:
    """The sets of a suite.

    Raises:
        OptionError: there is none of that name.
    """
    if name not in SUITES:
        raise OptionError(
            f"There is no suite {name!r}; choose one of: {', '.join(SUITES)}.", field="suite"
        )
    return SUITES[name]


def choose(suite_name: str, names: Sequence[str]) -> tuple[Task, ...]:
    """Those of a suite's sets that are named, in the suite's order; all where none is.

    The suite `single` has whatever set is named, as long as there is a folder of it.

    Raises:
        OptionError: the suite, or one of its sets, is not known.
    """
    every = {task.name: task for task in suite(suite_name)}
    if not names:
        return tuple(every.values())
    if suite_name == "single":
        every |= {name: single(name) for name in names}
    for name in names:
        if name not in every:
            raise OptionError(
                f"The suite {suite_name} has no set {name!r}; it has: {', '.join(every)}."
                f"{elsewhere(name)}",
                field="tasks",
            )
    return tuple(task for name, task in every.items() if name in names)


def elsewhere(name: str) -> str:
    """A hint where a set is found that the chosen suite does not have."""
    homes = [home for home, tasks in SUITES.items() if any(task.name == name for task in tasks)]
    if homes:
        return f" {name} is in the suite {homes[0]}."
    return " Any set of single texts is in the suite single."


def absent(task: Task, folder: Path) -> str:
    """Why a set without files cannot be run, where to get it and what its rows look like."""
    return (
        f"{task.name}: {folder} has no train.jsonl.gz and validation.jsonl.gz; get the set from "
        f"{task.source}, and write it there as lines such as {task.row}"
    )
