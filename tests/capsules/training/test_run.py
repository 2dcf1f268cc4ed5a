"""What a run does, from the first step to the best epoch."""

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.core import Example
from capsules.data.base import Dataset
from capsules.errors import (
    ArtefactError,
    DataError,
    DataFault,
    InputError,
    OptionError,
    TrainingError,
    TrainingFault,
)
from capsules.training.events import EpochReport
from capsules.training.run import Run
from tests.capsules.training.conftest import MakeRun
from tests.support.datasets import separable


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def without_time(reports: list[EpochReport]) -> list[EpochReport]:
    return [report.model_copy(update={"seconds": 0.0}) for report in reports]


@pytest.mark.parametrize("variant", ["addition", None])
def test_equal_seeds_give_equal_capsules_bit_for_bit(
    make_run: MakeRun, variant: str | None
) -> None:
    one, other = make_run(variant=variant, seed=3), make_run(variant=variant, seed=3)
    one.run()
    # Whatever others draw from the shared generator does not matter.
    torch.rand(17)
    other.run()
    assert same(one.trainable.snapshot(), other.trainable.snapshot())
    assert same(dict(one.best), dict(other.best))
    assert without_time(one.reports) == without_time(other.reports)


def test_another_seed_gives_other_values_and_another_order(make_run: MakeRun) -> None:
    one, other = make_run(seed=0), make_run(seed=1)
    assert not torch.equal(
        one.trainable.snapshot()["capsule"], other.trainable.snapshot()["capsule"]
    )
    assert one.batches(1) != other.batches(1)
    # From the same start, the order alone makes a difference.
    other.trainable.load(one.trainable.snapshot())
    one.epoch()
    other.epoch()
    assert not same(one.trainable.snapshot(), other.trainable.snapshot())


def test_every_epoch_has_every_row_in_an_order_of_its_own(make_run: MakeRun) -> None:
    run = make_run()
    first, second = run.batches(1), run.batches(2)
    assert first != second
    for batches in (first, second):
        assert sorted(row for batch in batches for row in batch) == list(range(36))
        assert all(len(batch) <= 8 for batch in batches)


@pytest.mark.parametrize("seed", [2**60, 2**63 - 1])
def test_the_largest_seeds_train(make_run: MakeRun, seed: int) -> None:
    run = make_run(seed=seed, epochs=1)
    run.run()
    assert len(run.reports) == 1


def test_a_separable_task_is_learned(make_run: MakeRun) -> None:
    train, validation, unseen = (separable(rows, seed=rows) for rows in (96, 24, 40))
    run = make_run(rows=(train, validation), epochs=8, learning_rate=0.1, patience=8)
    run.run()
    best = run.reports[run.best_epoch - 1]
    assert best.validation_accuracy == 1.0
    assert best.validation_loss < 0.1
    assert run.predict(validation) == [example.label for example in validation]
    right = [
        predicted == example.label
        for predicted, example in zip(run.predict(unseen), unseen, strict=True)
    ]
    assert sum(right) >= 38


def test_a_capsule_fits_more_than_a_head_alone(make_run: MakeRun, train: Dataset) -> None:
    chance = random.Random(0)
    noise = Dataset.of(Example(row.inputs, chance.choice(train.labels)) for row in train)
    losses = []
    for variant in ("addition", None):
        run = make_run(
            rows=(noise, noise), variant=variant, epochs=20, learning_rate=0.05, patience=20
        )
        run.run()
        losses.append(run.reports[-1].train_loss)
    assert losses[0] < 0.9 * losses[1]


def test_only_capsule_and_head_are_trained(make_run: MakeRun, tiny: LoadedBackbone) -> None:
    before = {name: value.clone() for name, value in tiny.backbone.model.state_dict().items()}
    run = make_run()
    start = run.trainable.snapshot()
    assert {name: tuple(value.shape) for name, value in start.items()} == {
        "capsule": (3, 1, 32),
        "head.weight": (2, 32),
        "head.bias": (2,),
    }
    trained = [value for group in run.optimizer.param_groups for value in group["params"]]
    assert {id(value) for value in trained} == {id(value) for value in run.trainable.parameters()}
    assert sum(value.numel() for value in trained) == 3 * 32 + 2 * 32 + 2

    gradients = []
    for parameter in tiny.backbone.model.parameters():
        assert not parameter.requires_grad
        gradients.append(parameter)
    run.run()
    end = run.trainable.snapshot()
    for name, value in start.items():
        assert not torch.equal(value, end[name]), name
    assert all(parameter.grad is None for parameter in gradients)
    assert not any(parameter.requires_grad for parameter in gradients)
    assert not any(module.training for module in tiny.backbone.model.modules())
    assert same(before, tiny.backbone.model.state_dict())


def test_runs_leave_no_hooks_behind(make_run: MakeRun, tiny: LoadedBackbone) -> None:
    layer = tiny.backbone.layers[0]
    before = len(layer._forward_pre_hooks)
    run = make_run()
    assert len(layer._forward_pre_hooks) > before
    del run
    assert len(layer._forward_pre_hooks) == before


class Scripted(Run):
    """A run whose validation says what it is told, and which need not train."""

    script: Iterator[tuple[float, float]]

    def train_epoch(self, number: int) -> float:
        with torch.no_grad():
            for tensor in self.trainable.named().values():
                tensor.fill_(number)
        return 1.0

    def validate(self) -> tuple[float, float]:
        return next(self.script)


def scripted(make_run: MakeRun, script: list[tuple[float, float]], patience: int) -> Run:
    run = make_run(kind=Scripted, epochs=len(script), patience=patience)
    assert isinstance(run, Scripted)
    run.script = iter(script)
    run.run()
    return run


@pytest.mark.parametrize(
    ("accuracies", "patience", "epochs", "best"),
    [
        ([0.1, 0.2, 0.3, 0.4], 1, 4, 4),
        ([0.5, 0.4, 0.4, 0.4], 1, 2, 1),
        ([0.5, 0.4, 0.4, 0.4], 2, 3, 1),
        ([0.5, 0.4, 0.6, 0.4, 0.5, 0.9], 2, 5, 3),
        ([0.5, 0.4, 0.6, 0.4, 0.5, 0.9], 3, 6, 6),
        ([0.0, 0.0, 0.0], 5, 3, 1),
    ],
)
def test_a_run_stops_when_patience_is_exhausted_and_keeps_the_best_epoch(
    make_run: MakeRun, accuracies: list[float], patience: int, epochs: int, best: int
) -> None:
    run = scripted(make_run, [(accuracy, 1.0) for accuracy in accuracies], patience)
    assert run.finished
    assert len(run.reports) == epochs
    assert run.best_epoch == best
    for tensor in run.best.values():
        assert tensor.eq(best).all()
    for tensor in run.trainable.snapshot().values():
        assert tensor.eq(epochs).all()


def test_of_equally_accurate_epochs_the_one_of_lower_loss_is_better(make_run: MakeRun) -> None:
    run = scripted(make_run, [(0.5, 2.0), (0.5, 1.0), (0.5, 1.0), (0.4, 0.1)], patience=4)
    assert [report.best for report in run.reports] == [True, True, False, False]
    assert run.best_epoch == 2


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_validation_loss_that_is_no_number_stops_the_run(make_run: MakeRun, loss: float) -> None:
    with pytest.raises(TrainingError, match="lower the learning rate") as stopped:
        scripted(make_run, [(0.5, 1.0), (0.9, loss)], patience=4)
    assert (stopped.value.code, stopped.value.field) == (TrainingFault.DIVERGED, "learning_rate")
    assert "validation rows after epoch 2" in stopped.value.message


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_best_epoch(
    make_run: MakeRun,
) -> None:
    run = make_run()
    run.epoch()
    best = {name: value.clone() for name, value in run.best.items()}
    with torch.no_grad():
        run.trainable.named()["capsule"][0, 0, 0] = float("nan")
    with pytest.raises(TrainingError, match=r"\(0\.02\)") as stopped:
        run.run()
    assert (stopped.value.code, stopped.value.field) == (TrainingFault.DIVERGED, "learning_rate")
    assert "nan at step 1 of epoch 2" in stopped.value.message
    assert same(dict(run.best), best)
    assert len(run.reports) == 1


def test_a_learning_rate_beyond_all_bounds_diverges(make_run: MakeRun) -> None:
    with pytest.raises(TrainingError) as stopped:
        make_run(learning_rate=1e38).run()
    assert stopped.value.code == TrainingFault.DIVERGED


def test_reports_say_what_happened(make_run: MakeRun, validation: Dataset) -> None:
    run = make_run(epochs=3)
    run.run()
    assert [report.epoch for report in run.reports] == [1, 2, 3]
    assert run.seconds == pytest.approx(sum(report.seconds for report in run.reports))
    last = run.reports[-1]
    run.best = run.trainable.snapshot()
    right = [
        predicted == example.label
        for predicted, example in zip(run.predict(validation), validation, strict=True)
    ]
    assert last.validation_accuracy == pytest.approx(sum(right) / len(validation))


class Recorder:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, int]] = []
        self.losses: list[float] = []
        self.reports: list[EpochReport] = []

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        self.steps.append((epoch, step, steps))
        self.losses.append(loss)

    def epoch(self, report: EpochReport) -> None:
        self.reports.append(report)


def test_a_watcher_follows_every_step_and_epoch(make_run: MakeRun) -> None:
    watcher = Recorder()
    run = make_run(epochs=2, watcher=watcher)
    run.run()
    assert watcher.steps == [(epoch, step, 5) for epoch in (1, 2) for step in (1, 2, 3, 4, 5)]
    assert watcher.reports == run.reports
    weights = [len(rows) for epoch in (1, 2) for rows in run.batches(epoch)]
    for report, start in zip(run.reports, (0, 5), strict=True):
        losses = zip(watcher.losses[start : start + 5], weights[start : start + 5], strict=True)
        assert report.train_loss == pytest.approx(sum(a * b for a, b in losses) / 36)


def test_the_learning_rate_falls_to_zero_over_all_epochs(make_run: MakeRun) -> None:
    run = make_run(epochs=2)
    rates = []
    for _ in range(2):
        run.epoch()
        rates.append(run.schedule.get_last_lr()[0])
    assert rates == pytest.approx([0.01, 0.0])


def test_labels_keep_their_order(make_run: MakeRun) -> None:
    def relabelled(order: tuple[str, str]) -> tuple[Dataset, Dataset]:
        return tuple(  # type: ignore[return-value]
            Dataset.of(separable(rows, seed=rows), labels=order) for rows in (36, 14)
        )

    forward = make_run(rows=relabelled(("no", "yes")), epochs=8)
    backward = make_run(rows=relabelled(("yes", "no")), epochs=8)
    assert forward.labels == ("no", "yes")
    assert backward.labels == ("yes", "no")
    for run in (forward, backward):
        start = run.trainable.snapshot()
        if run is backward:
            start["head.weight"] = start["head.weight"].flip(0)
            run.trainable.load(start)
        run.run()
    # The same training in other rows of the head.
    for name in ("head.weight", "head.bias"):
        torch.testing.assert_close(forward.best[name], backward.best[name].flip(0))
    torch.testing.assert_close(forward.best["capsule"], backward.best["capsule"])
    unseen = separable(20, seed=3)
    assert forward.predict(unseen) == backward.predict(unseen)


def test_a_label_without_rows_keeps_its_place(make_run: MakeRun) -> None:
    labels = ("no", "rare", "yes")
    rows = tuple(Dataset.of(separable(n, seed=n), labels=labels) for n in (36, 14))
    run = make_run(rows=rows, epochs=1)
    run.run()
    assert run.best["head.bias"].shape == (3,)
    assert "rare" not in run.predict(rows[0])


def test_a_validation_label_that_is_not_trained_is_refused(
    make_run: MakeRun, train: Dataset
) -> None:
    other = Dataset.of([*separable(4), Example({"text": "w9"}, "perhaps")])
    with pytest.raises(DataError, match="'perhaps', which no training row has") as refused:
        make_run(rows=(train, other))
    assert (refused.value.code, refused.value.field) == (DataFault.UNKNOWN_LABEL, "labels")


def test_one_class_is_refused(make_run: MakeRun, validation: Dataset) -> None:
    rows = [example for example in separable(20) if example.label == "no"]
    with pytest.raises(DataError) as refused:
        make_run(rows=(Dataset.of(rows), validation))
    assert refused.value.code == DataFault.ONE_CLASS


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_length": 66}, "more than this backbone takes with 1 capsule token(s): 65"),
        ({"max_length": 68, "length": 3}, "with 3 capsule token(s): 67"),
        ({"max_length": 65, "variant": None}, "with 0 capsule token(s): 64"),
        ({"max_length": 5, "length": 3}, "no room for text beside 3 capsule token(s)"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(
    make_run: MakeRun, options: dict[str, object], says: str
) -> None:
    with pytest.raises(OptionError) as refused:
        make_run(**options)
    assert refused.value.field == "max_length"
    assert says in refused.value.message


@pytest.mark.parametrize(
    "options",
    [
        {"max_length": 65},
        {"max_length": 67, "length": 3},
        {"max_length": 4},
        {"max_length": 64, "variant": None},
    ],
    ids=str,
)
def test_lengths_at_the_limits_train(make_run: MakeRun, options: dict[str, object]) -> None:
    long = separable(8, longest=100)
    run = make_run(rows=(long, long), epochs=1, **options)
    slots = 0 if "variant" in options else options.get("length", 1)
    longest = max(len(row.input_ids) for row in run.train_rows)
    assert longest + slots == options["max_length"]  # type: ignore[operator]
    run.run()


def test_half_precision_backbones_are_refused(make_run: MakeRun, tiny: LoadedBackbone) -> None:
    half = load(str(tiny.info.path), device="cpu", dtype="bfloat16")
    with pytest.raises(OptionError, match="trained in float32") as refused:
        make_run(loaded=half)
    assert refused.value.field == "dtype"


@pytest.mark.parametrize(
    ("template", "error"),
    [("{premise}", InputError), ("{text.upper}", ArtefactError)],
)
def test_templates_that_do_not_fit_are_refused_before_training(
    make_run: MakeRun, template: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        make_run(template=template)


def test_a_template_is_what_is_trained_on(make_run: MakeRun) -> None:
    plain, wordy = make_run(), make_run(template="w150 w151 : {text}")
    assert [len(row.input_ids) + 3 for row in plain.train_rows] == [
        len(row.input_ids) for row in wordy.train_rows
    ]


@pytest.mark.parametrize("length", [1, 3])
def test_every_length_trains(make_run: MakeRun, length: int) -> None:
    run = make_run(length=length, epochs=2)
    run.run()
    assert run.best["capsule"].shape == (3, length, 32)
    assert run.reports[1].train_loss < run.reports[0].train_loss


def test_prediction_uses_the_best_epoch_and_leaves_the_run_as_it_is(
    make_run: MakeRun, validation: Dataset
) -> None:
    run = make_run(epochs=2)
    run.run()
    present = run.trainable.snapshot()
    flip: Callable[[Tensor], Tensor] = lambda value: -value  # noqa: E731
    before = run.predict(validation)
    run.best = {name: flip(value) if "head" in name else value for name, value in run.best.items()}
    assert run.predict(validation) != before
    assert same(run.trainable.snapshot(), present)
