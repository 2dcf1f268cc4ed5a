from dataclasses import replace

import pytest

from capsules.artefact.file import read as read_capsule
from capsules.errors import DataError, OptionError, TrainingError
from capsules.reproduce.comparison import compare
from capsules.reproduce.experiment import Experiment, longest
from capsules.reproduce.journal import CHECKPOINTS, RUNS, Journal
from capsules.reproduce.method import METHODS
from capsules.reproduce.observer import Unobserved
from capsules.reproduce.record import Configuration, Frozen, Settings
from capsules.reproduce.splits import require
from capsules.training.events import Silent
from tests.capsules.reproduce.sets import CB_LABELS, TASKS, rows, write_file

RATES = (0.05,)
LAYERS, WIDTH, LABELS = 3, 32, 3
HEAD = LABELS * (WIDTH + 1)


class Recorder(Unobserved):
    """Keeps what it is told, and may interrupt after an epoch."""

    def __init__(self, interrupt=False):
        self.interrupt = interrupt
        self.plans, self.watched, self.rows, self.skips = [], [], [], []

    def plan(self, runs, done):
        self.plans.append((runs, done))

    def watch(self, name, learning_rate):
        self.watched.append((name, learning_rate))
        return Interrupter() if self.interrupt else Silent()

    def finished(self, row):
        self.rows.append(row)

    def skipped(self, skip):
        self.skips.append(skip)


class Interrupter(Silent):
    def epoch(self, report):
        raise KeyboardInterrupt


@pytest.fixture
def make_journal(tiny, tmp_path):
    """Opens a folder of runs on the tiny backbone."""

    def make(name="runs", **settings):
        info = tiny.info
        frozen = Frozen(
            id=info.id,
            specification="tiny",
            family=info.family,
            architecture=info.architecture,
            parameters=info.parameters,
            fingerprint=info.fingerprint,
        )
        chosen = Settings(**{"epochs": 2, "batch_size": 8, **settings})
        return Journal(tmp_path / name, Configuration(backbone=frozen, settings=chosen))

    return make


@pytest.fixture
def experiment(data):
    """A run on CB; another set, method, seed or rates may be asked for."""

    def make(method="capsule", *, task="cb", seed=0, rates=RATES):
        return Experiment(require(TASKS[task], data), METHODS[method], seed, rates)

    return make


def test_every_method_is_run_and_kept(tiny, make_journal, experiment):
    journal, observer = make_journal(epochs=1), Recorder()
    failed = compare([experiment(name) for name in METHODS], tiny, journal, observer)
    assert failed == []
    assert [row.method for row in journal.rows] == list(METHODS)
    assert observer.rows == journal.rows
    learned = {row.method: row.trainable_parameters - HEAD for row in journal.rows}
    vector = LAYERS * WIDTH
    assert learned["linear-head"] == learned["instance-only"] == 0
    assert learned["capsule"] == learned["prepending"] == learned["task-only"] == vector
    # A kernel of five and a bias; rank eight, down and up.
    assert learned["extraction"] == vector + LAYERS * WIDTH * (5 + 1)
    assert learned["projection"] == vector + LAYERS * 2 * 8 * WIDTH
    assert min(learned[name] for name, one in METHODS.items() if one.baseline) > vector
    for row in journal.rows:
        assert (row.train_rows, row.validation.rows, row.test.rows) == (36, 4, 12)
        assert row.test.score == pytest.approx((row.test.accuracy + row.test.macro_f1) / 2)
        assert row.seconds > 0
        assert row.note == "40 of the 250 published training rows"
    assert list((journal.folder / CHECKPOINTS).glob("*.pt")) == []


def test_capsules_are_kept_as_files_that_say_how_good_they_are(tiny, make_journal, experiment):
    journal = make_journal()
    compare([experiment(), experiment("linear-head")], tiny, journal, Unobserved())
    (path,) = (journal.folder / "capsules").iterdir()
    assert path.name == "cb-capsule-0.safetensors"
    manifest = read_capsule(path).manifest
    assert manifest.labels == list(CB_LABELS)
    assert manifest.template == TASKS["cb"].template
    assert manifest.training is not None
    assert manifest.training.metrics["test_score"] == journal.rows[0].test.score
    assert manifest.training.splits.test == 12


def test_finished_runs_are_not_made_again(tiny, make_journal, experiment):
    compare([experiment()], tiny, make_journal(), Unobserved())
    journal, observer = make_journal(), Recorder()
    before = (journal.folder / RUNS).read_bytes()
    compare([experiment(), experiment("linear-head")], tiny, journal, observer)
    assert observer.plans == [(2, 1)]
    assert [row.method for row in observer.rows] == ["linear-head"]
    assert (journal.folder / RUNS).read_bytes().startswith(before)


def test_interrupted_run_ends_as_an_undisturbed_one(tiny, make_journal, experiment):
    whole, broken = make_journal("whole"), make_journal("broken")
    compare([experiment(task="trec")], tiny, whole, Unobserved())
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            compare([experiment(task="trec")], tiny, broken, Recorder(interrupt=True))
    assert broken.rows == []
    # Both epochs are on disk by now, so only measuring is left.
    compare([experiment(task="trec")], tiny, broken, Recorder(interrupt=True))
    (expected,), (found,) = whole.rows, broken.rows
    same = ("identity", "test", "validation", "best_epoch", "epochs")
    assert [getattr(found, name) for name in same] == [getattr(expected, name) for name in same]


def test_best_rate_is_chosen_by_validation(tiny, make_journal, experiment):
    journal, observer = make_journal(), Recorder()
    compare([experiment(task="trec", rates=(1e-9, 0.05))], tiny, journal, observer)
    (row,) = journal.rows
    assert row.rates == (1e-9, 0.05)
    assert row.learning_rate == 0.05
    low, high = (one.validation.score for one in row.candidates)
    assert high == row.validation.score > low
    assert row.search_seconds == pytest.approx(sum(one.seconds for one in row.candidates))
    assert row.search_seconds > row.seconds
    assert observer.watched == [("trec-capsule-0", 1e-9), ("trec-capsule-0", 0.05)]


def test_rate_that_diverges_is_told_and_not_chosen(tiny, make_journal, experiment):
    journal = make_journal()
    compare([experiment(rates=(0.05, 1e38))], tiny, journal, Unobserved())
    good, bad = journal.rows[0].candidates
    assert journal.rows[0].learning_rate == 0.05
    assert good.failure is None
    assert bad.validation is None
    assert "lower the learning rate" in bad.failure


def test_run_that_fails_costs_the_others_nothing(tiny, make_journal, experiment):
    journal, observer = make_journal(), Recorder()
    failed = compare(
        [experiment(rates=(1e38,)), experiment("linear-head")], tiny, journal, observer
    )
    assert [row.method for row in journal.rows] == ["linear-head"]
    assert failed == observer.skips
    assert (failed[0].task, failed[0].method, failed[0].seed) == ("cb", "capsule", 0)
    assert "cb-capsule-0: The loss is" in failed[0].reason


def test_options_that_do_not_fit_are_told(tiny, make_journal, experiment):
    tight = make_journal("tight", max_length=4)
    (failed,) = compare([experiment("prepending")], tiny, tight, Unobserved())
    assert "max_length 4 leaves no room for text" in failed.reason
    deep = make_journal("deep", layers=(9,))
    (failed,) = compare([experiment()], tiny, deep, Unobserved())
    assert "does not lie within 1 to 3" in failed.reason


def test_folder_that_fills_up_stops_everything(tiny, make_journal, experiment):
    journal = make_journal()
    (journal.folder / RUNS).mkdir()
    with pytest.raises(TrainingError, match="cannot be written"):
        compare([experiment("linear-head")], tiny, journal, Unobserved())


def test_other_rows_in_the_same_folder_are_refused_before_any_run(
    tiny, data, make_journal, experiment
):
    journal, observer = make_journal(), Recorder()
    compare([experiment("linear-head")], tiny, journal, Unobserved())
    write_file(data / "cb", "train", rows(TASKS["cb"], 44))
    with pytest.raises(OptionError, match="on other rows"):
        compare([experiment("capsule"), experiment("linear-head")], tiny, journal, observer)
    assert observer.plans == []


def test_rows_that_cannot_be_divided_stop_everything(tiny, make_journal, experiment):
    good = experiment("linear-head")
    train = good.source.train
    few = replace(good.source, train=train.subset(range(2)))
    observer = Recorder()
    with pytest.raises(DataError, match="cb"):
        compare([good, replace(good, source=few, seed=1)], tiny, make_journal(), observer)
    assert observer.plans == []


def test_capsules_take_no_position_from_the_text(tiny):
    info, settings = tiny.info, Settings()
    assert longest(METHODS["capsule"], settings, info) == info.max_tokens + 1
    assert longest(METHODS["prepending"], settings, info) == info.max_tokens + 2
    assert longest(METHODS["prompt-tuning"], settings, info) == info.max_tokens
    assert longest(METHODS["linear-head"], settings, info) == info.max_tokens
    assert longest(METHODS["capsule"], Settings(max_length=16), info) == 16
