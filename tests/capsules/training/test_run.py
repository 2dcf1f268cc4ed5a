"""What a run does, from the first step to the best epoch."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.core import Example, TokenBatch
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
from capsules.training.trainable import Trainable
from tests.capsules.training.conftest import MakeRun
from tests.support.batches import VARIANTS
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
    assert same(one.learner.snapshot(), other.learner.snapshot())
    assert same(dict(one.best), dict(other.best))
    assert without_time(one.reports) == without_time(other.reports)


def test_another_seed_gives_other_values_and_another_order(make_run: MakeRun) -> None:
    one, other = make_run(seed=0), make_run(seed=1)
    assert not torch.equal(one.learner.snapshot()["capsule"], other.learner.snapshot()["capsule"])
    assert one.batches(1) != other.batches(1)
    # From the same start, the order alone makes a difference.
    other.learner.load(one.learner.snapshot())
    one.epoch()
    other.epoch()
    assert not same(one.learner.snapshot(), other.learner.snapshot())


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
    start = run.learner.snapshot()
    assert {name: tuple(value.shape) for name, value in start.items()} == {
        "capsule": (3, 1, 32),
        "head.weight": (2, 32),
        "head.bias": (2,),
    }
    trained = [value for group in run.optimizer.param_groups for value in group["params"]]
    assert {id(value) for value in trained} == {id(value) for value in run.learner.parameters()}
    assert sum(value.numel() for value in trained) == 3 * 32 + 2 * 32 + 2

    gradients = []
    for parameter in tiny.backbone.model.parameters():
        assert not parameter.requires_grad
        gradients.append(parameter)
    run.run()
    end = run.learner.snapshot()
    for name, value in start.items():
        assert not torch.equal(value, end[name]), name
    assert all(parameter.grad is None for parameter in gradients)
    assert not any(parameter.requires_grad for parameter in gradients)
    assert not any(module.training for module in tiny.backbone.model.modules())
    assert same(before, tiny.backbone.model.state_dict())


def test_runs_leave_the_layers_as_they_are(make_run: MakeRun, tiny: LoadedBackbone) -> None:
    run = make_run(epochs=1)
    run.run()
    for layer in tiny.backbone.layers:
        assert not layer._forward_pre_hooks
        assert not layer._forward_hooks


class Scripted(Run):
    """A run whose validation says what it is told, and which need not train."""

    script: Iterator[tuple[float, float]]

    def train_epoch(self, number: int) -> float:
        with torch.no_grad():
            for tensor in self.learner.named().values():
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
    for tensor in run.learner.snapshot().values():
        assert tensor.eq(epochs).all()


def test_of_equally_accurate_epochs_the_one_of_lower_loss_is_better(make_run: MakeRun) -> None:
    run = scripted(make_run, [(0.5, 2.0), (0.5, 1.0), (0.5, 1.0), (0.4, 0.1)], patience=4)
    assert [report.best for report in run.reports] == [True, True, False, False]
    assert run.best_epoch == 2


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_validation_loss_that_is_no_number_stops_the_run(make_run: MakeRun, loss: float) -> None:
    with pytest.raises(
        TrainingError, match=r"lower the learning rate \(--learning-rate, "
    ) as stopped:
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
        run.learner.named()["capsule"][0, 0, 0] = float("nan")
    with pytest.raises(TrainingError, match=r"below 0\.02\.") as stopped:
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
    run.best = run.learner.snapshot()
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
        start = run.learner.snapshot()
        if run is backward:
            start["head.weight"] = start["head.weight"].flip(0)
            run.learner.load(start)
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
        ({"max_length": 67, "variant": "prepending"}, "with 2 capsule token(s): 66"),
        ({"max_length": 4, "variant": "prepending"}, "no room for text beside 2 capsule"),
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
    ("options", "longest"),
    [
        ({"max_length": 65}, 64),
        ({"max_length": 67, "length": 3}, 64),
        ({"max_length": 4}, 3),
        ({"max_length": 64, "variant": None}, 64),
        ({"max_length": 66, "variant": "prepending"}, 64),
        ({"max_length": 5, "variant": "prepending"}, 3),
    ],
    ids=str,
)
def test_lengths_at_the_limits_train(
    make_run: MakeRun, options: dict[str, object], longest: int
) -> None:
    long = separable(8, longest=100)
    run = make_run(rows=(long, long), epochs=1, **options)
    assert max(len(row.input_ids) for row in run.train_rows) == longest
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


@pytest.mark.parametrize("layers", ["all", "latter-half", (1, 3)], ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_on_any_layers(
    make_run: MakeRun, variant: str, layers: object
) -> None:
    run = make_run(variant=variant, layers=layers, epochs=3)
    run.run()
    assert run.reports[2].train_loss < run.reports[0].train_loss
    injections = {"all": 3, "latter-half": 1, (1, 3): 2}[layers]  # type: ignore[index]
    learned = {name: value for name, value in run.best.items() if not name.startswith("head.")}
    assert all(len(value) == injections for value in learned.values())
    assert (len(learned) == 0) == (variant == "instance-only")


@pytest.mark.parametrize(
    ("family", "labels"),
    [("tiny_llama", ("no", "yes")), ("tiny_t5", ("w7", "w9")), ("tiny_t5", ("w7", "w7 w9"))],
    ids=["llama", "t5", "t5-longer-words"],
)
def test_every_family_learns_a_separable_task(
    make_run: MakeRun, family: str, labels: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    train, validation = (separable(rows, labels=labels, seed=rows) for rows in (48, 20))
    run = make_run(
        rows=(train, validation),
        loaded=request.getfixturevalue(family),
        length=4,
        epochs=15,
        patience=15,
        learning_rate=0.3,
    )
    run.run()
    assert run.reports[run.best_epoch - 1].validation_accuracy >= 0.9
    right = [
        predicted == example.label
        for predicted, example in zip(run.predict(train), train, strict=True)
    ]
    assert sum(right) >= 44


def test_layers_that_the_backbone_does_not_have_are_refused(make_run: MakeRun) -> None:
    with pytest.raises(OptionError, match="does not lie within 1 to 3") as refused:
        make_run(layers=[2, 4])
    assert refused.value.field == "layers"


def test_verbalizers_are_for_backbones_that_answer_in_words(
    make_run: MakeRun, tiny_t5: LoadedBackbone
) -> None:
    with pytest.raises(OptionError) as refused:
        make_run(verbalizers={"no": "w1", "yes": "w2"})
    assert refused.value.field == "verbalizers"
    make_run(loaded=tiny_t5, verbalizers={"no": "w1", "yes": "w2"}, epochs=1).run()


class Counting(Trainable):
    """Counts the rows that go through the backbone."""

    passed = 0

    def features(self, tokens: TokenBatch) -> Tensor:
        self.passed += len(tokens)
        return super().features(tokens)


class Forgetting(Counting):
    """Has its features taken anew each time, whatever they depend on."""

    @property
    def fixed_features(self) -> bool:
        return False


def passed(run: Run) -> int:
    """Rows that went through the backbone so far."""
    assert isinstance(run.learner, Counting)
    return run.learner.passed


@pytest.mark.parametrize("variant", ["instance-only", None])
@pytest.mark.parametrize("family", ["tiny", "tiny_llama"])
def test_features_that_never_change_are_taken_once(
    make_run: MakeRun, family: str, variant: str | None, request: pytest.FixtureRequest
) -> None:
    loaded = request.getfixturevalue(family)
    options = {"loaded": loaded, "variant": variant, "length": 2, "epochs": 4, "patience": 4}
    keeping, forgetting = (
        make_run(learner=learner, **options) for learner in (Counting, Forgetting)
    )
    assert (passed(keeping), passed(forgetting)) == (36 + 14, 0)
    for run in (keeping, forgetting):
        run.run()
    assert (passed(keeping), passed(forgetting)) == (36 + 14, 4 * (36 + 14))
    # And the training is the same.
    for one, other in zip(keeping.reports, forgetting.reports, strict=True):
        assert one.train_loss == pytest.approx(other.train_loss, abs=1e-5)
        assert one.validation_loss == pytest.approx(other.validation_loss, abs=1e-5)
    start = make_run(**options).learner.snapshot()
    for name, value in keeping.learner.snapshot().items():
        assert not torch.equal(value, start[name]), name
        torch.testing.assert_close(value, forgetting.learner.snapshot()[name], atol=1e-4, rtol=1e-4)
    unseen = separable(20, seed=5)
    assert keeping.predict(unseen) == forgetting.predict(unseen)


def test_features_that_change_are_taken_at_every_step(make_run: MakeRun) -> None:
    run = make_run(learner=Counting, variant="task-only", epochs=2)
    assert passed(run) == 0
    run.run()
    assert passed(run) == 2 * (36 + 14)


class Roomy(Trainable):
    """Takes more of the sequence than its options say."""

    identity = "roomy"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.slots += 10


def test_a_learner_says_what_is_not_left_to_the_text(make_run: MakeRun) -> None:
    long = separable(8, longest=100)
    run = make_run(rows=(long, long), learner=Roomy, max_length=40, epochs=1)
    assert max(len(row.input_ids) for row in run.train_rows) == 40 - 11
    run.run()
    make_run(learner=Roomy, max_length=64 + 11)
    with pytest.raises(OptionError, match=r"with 11 capsule token\(s\): 75"):
        make_run(learner=Roomy, max_length=64 + 12)


def test_the_learner_is_part_of_a_runs_identity(make_run: MakeRun, tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    make_run(learner=Roomy, checkpoint_path=path).epoch()
    assert len(make_run(learner=Roomy, checkpoint_path=path).reports) == 1
    with pytest.raises(TrainingError) as refused:
        make_run(checkpoint_path=path)
    assert refused.value.code == TrainingFault.CHECKPOINT_MISMATCH


def test_prediction_uses_the_best_epoch_and_leaves_the_run_as_it_is(
    make_run: MakeRun, validation: Dataset
) -> None:
    run = make_run(epochs=2)
    run.run()
    present = run.learner.snapshot()
    flip: Callable[[Tensor], Tensor] = lambda value: -value  # noqa: E731
    before = run.predict(validation)
    run.best = {name: flip(value) if "head" in name else value for name, value in run.best.items()}
    assert run.predict(validation) != before
    assert same(run.learner.snapshot(), present)
