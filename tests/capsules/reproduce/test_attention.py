import matplotlib.image as images
import pytest

from capsules.reproduce import attention
from capsules.reproduce.attention import draw_attention, shortest
from capsules.reproduce.comparison import compare
from capsules.reproduce.experiment import Experiment
from capsules.reproduce.journal import Journal
from capsules.reproduce.method import METHODS
from capsules.reproduce.observer import Unobserved
from capsules.reproduce.splits import require
from tests.capsules.reproduce.sets import TASKS, write_file


@pytest.fixture
def source(data):
    """Trec, whose shortest text is known."""
    lines = [{"text": text, "label": "no"} for text in ("w1 w2 w3", "w4 w5", "w6 w7 w8 w9")]
    write_file(data / "trec", "test", lines)
    return require(TASKS["trec"], data)


def train(source, loaded, journal, *methods, seed=0):
    experiments = [Experiment(source, METHODS[name], seed, (0.02,)) for name in methods]
    assert compare(experiments, loaded, journal, Unobserved()) == []


def test_map_is_drawn_of_the_first_seed_that_both_have(
    tiny, source, configuration, tmp_path, monkeypatch
):
    settings = configuration.settings.model_copy(update={"epochs": 1})
    journal = Journal(tmp_path / "runs", configuration.model_copy(update={"settings": settings}))
    train(source, tiny, journal, "capsule")
    assert draw_attention(source, tiny, journal) is None
    train(source, tiny, journal, "capsule", "task-only", seed=1)
    drawn = {}
    monkeypatch.setattr(attention, "draw", lambda maps, path: drawn.update(maps))
    path = draw_attention(source, tiny, journal)
    assert path == journal.folder / "attention-trec.png"
    assert list(drawn) == ["capsule", "single soft prompt"]
    assert {found.tokens for found in drawn.values()} == {("[CLS]", "w4", "w5", "[SEP]")}
    monkeypatch.undo()
    draw_attention(source, tiny, journal)
    assert images.imread(path).shape[0] > 100


def test_text_is_of_the_validation_file_where_that_is_the_test(data):
    source = require(TASKS["cb"], data)
    assert shortest(source) in source.validation.examples
