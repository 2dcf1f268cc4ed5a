from pathlib import Path

import pytest

from capsules.zoo.build import Measured, Result
from capsules.zoo.table import BEGIN, END, insert, markdown, results

README = Path(__file__).parents[3] / "README.md"


def result(task: str, seed: int, accuracy: float) -> Result:
    measured = Measured(
        validation_accuracy=0.9,
        test_accuracy=accuracy,
        test_macro_f1=0.5,
        best_epoch=1,
        epochs=2,
        seconds=3.0,
    )
    return Result(
        task=task,
        seed=seed,
        labels=6,
        rows={"train": 4922, "validation": 530, "test": 500},
        learning_rate=0.02,
        capsule=measured,
        linear_head=measured.model_copy(update={"test_accuracy": 0.25}),
        digest="0" * 64,
        bytes=20480,
    )


def test_the_readme_shows_the_committed_results():
    shown = README.read_text().partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == markdown(results())


def test_one_seed_is_shown_as_it_is():
    line = markdown([result("trec", 0, 0.95)]).splitlines()[2]
    assert line == ("| trec | 6 | 4,922 / 500 | **0.950** | 0.250 | 0.500 | 0.900 | 20 KiB |")


def test_several_seeds_are_shown_as_mean_and_deviation():
    line = markdown([result("trec", seed, 0.94 + seed / 100) for seed in range(3)]).splitlines()[2]
    assert "**0.950 ± 0.010 (3 seeds)**" in line


def test_the_table_replaces_what_stood_between_the_marks():
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert insert(document, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_a_document_without_marks_is_refused():
    with pytest.raises(ValueError, match="no place for the table"):
        insert("no marks", "new")
