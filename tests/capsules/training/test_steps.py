"""Training against an independent reference: gradients, Adafactor, schedule and data order."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from capsules.backbones.load import load
from capsules.data.base import Dataset
from capsules.training.config import TrainingConfig
from capsules.training.run import Run
from tests.reference.adafactor import Adafactor
from tests.reference.bert import Bert
from tests.reference.capsule import (
    Capsule,
    Learned,
    chosen,
    features,
    gradient,
    probabilities,
    with_tensor,
)
from tests.reference.maths import Array
from tests.support.backbones import save_tiny_bert
from tests.support.datasets import separable

RATE = 0.05
# The head learns at a fifth of the rate.
HEAD_SHARE = 0.2
EPOCHS = 2
LABELS = ("a", "b", "c")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("smaller"), hidden_size=8, layers=2)


@pytest.fixture(scope="module")
def rows() -> Dataset:
    return separable(5, labels=LABELS, longest=5)


class Expected:
    """The same training by the equations, in float64."""

    def __init__(self, run: Run, bert: Bert) -> None:
        start = run.learner.snapshot()
        self.tensors = {name: value.double().numpy() for name, value in start.items()}
        self.optimisers = {name: Adafactor() for name in self.tensors}
        self.bert = bert
        self.config = run.config
        self.ids = [encoding.input_ids for encoding in run.train_rows]
        self.targets = [LABELS.index(example.label) for example in run.train]
        self.orders = [run.batches(epoch) for epoch in range(1, EPOCHS + 1)]
        self.losses: list[float] = []

    @property
    def capsule(self) -> Learned:
        """What is learned but for the head."""
        if self.config.variant is None:
            return None
        learned = {k: value for k, value in self.tensors.items() if not k.startswith("head.")}
        layers = chosen(self.config.layers, self.bert.num_layers)
        return Capsule(self.config.variant, self.config.length, layers, learned)

    def train(self) -> None:
        steps = [batch for order in self.orders for batch in order]
        for number, batch in enumerate(steps):
            self.step(batch, RATE * (1 - number / len(steps)))

    def step(self, batch: list[int], rate: float) -> None:
        weight, bias = self.tensors["head.weight"], self.tensors["head.bias"]
        found: dict[str, Array] = {name: np.zeros(0) for name in self.tensors}

        def loss(learned: Learned) -> Array:
            total = 0
            for row in batch:
                states = features(self.bert, self.ids[row], learned)
                logits = weight @ states + bias
                total = total + np.log(np.exp(logits).sum()) - logits[self.targets[row]]
            return np.asarray(total / len(batch))

        if isinstance(self.capsule, Capsule):
            found |= gradients(loss, self.capsule)
        found["head.weight"] = np.zeros_like(weight)
        found["head.bias"] = np.zeros_like(bias)
        for row in batch:
            states = features(self.bert, self.ids[row], self.capsule)
            logits = weight @ states + bias
            off = np.exp(logits) / np.exp(logits).sum()
            off[self.targets[row]] -= 1
            found["head.weight"] += np.outer(off, states) / len(batch)
            found["head.bias"] += off / len(batch)
        self.losses.append(float(loss(self.capsule)))
        for name, value in self.tensors.items():
            share = HEAD_SHARE if name.startswith("head.") else 1.0
            self.tensors[name] = self.optimisers[name].step(value, found[name], rate * share)


def gradients(loss: Callable[[Learned], Array], capsule: Capsule) -> Mapping[str, Array]:
    """Of the loss, in every tensor of a capsule."""

    def along(name: str) -> Callable[[Array], Array]:
        return lambda value: loss(with_tensor(capsule, name, value))

    return {name: gradient(along(name), value) for name, value in capsule.tensors.items()}


class Losses:
    """Keeps the loss of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        self.losses.append(loss)

    def epoch(self, report: object) -> None:
        pass


@pytest.mark.parametrize(
    ("variant", "length", "layers"),
    [
        ("addition", 1, "all"),
        ("addition", 2, "all"),
        ("addition", 1, "latter-half"),
        ("prepending", 1, "all"),
        ("extraction", 1, [2]),
        ("projection", 1, [1]),
        ("task-only", 2, "all"),
        ("instance-only", 1, "all"),
        (None, 1, "all"),
    ],
    ids=str,
)
def test_training_follows_the_equations_step_by_step(
    folder: Path, rows: Dataset, variant: str | None, length: int, layers: str | list[int]
) -> None:
    config = TrainingConfig.model_validate(
        {
            "task": "steps",
            "variant": variant,
            "length": length,
            "layers": layers,
            "epochs": EPOCHS,
            "batch_size": 2,
            "learning_rate": RATE,
            "max_length": 32,
            "seed": 5,
        }
    )
    watcher = Losses()
    run = Run(load(str(folder), device="cpu", dtype="float32"), config, rows, rows, watcher=watcher)
    expected = Expected(run, Bert.from_folder(folder))
    expected.train()
    run.run()
    assert watcher.losses == pytest.approx(expected.losses, abs=1e-4)
    for name, value in run.learner.snapshot().items():
        assert np.abs(value.numpy() - expected.tensors[name]).max() < 1e-3, name


def test_validation_is_the_mean_over_all_rows(folder: Path, rows: Dataset) -> None:
    config = TrainingConfig(task="steps", batch_size=3, learning_rate=RATE, max_length=32)
    run = Run(load(str(folder), device="cpu", dtype="float32"), config, rows, rows)
    accuracy, loss = run.validate()
    bert = Bert.from_folder(folder)
    tensors = {name: value.double().numpy() for name, value in run.learner.snapshot().items()}
    scores = [
        probabilities(
            bert,
            encoding.input_ids,
            tensors["capsule"],
            tensors["head.weight"],
            tensors["head.bias"],
        )
        for encoding in run.validation_rows
    ]
    targets = [LABELS.index(example.label) for example in rows]
    surprise = [-np.log(row[target]) for row, target in zip(scores, targets, strict=True)]
    right = [int(row.argmax()) == target for row, target in zip(scores, targets, strict=True)]
    assert loss == pytest.approx(sum(surprise) / len(surprise), abs=1e-5)
    assert accuracy == pytest.approx(sum(right) / len(right))
