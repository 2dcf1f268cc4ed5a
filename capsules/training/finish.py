"""Turns a finished run into a capsule that can prove itself."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version as installed_version

import torch

from capsules.artefact.file import Capsule
from capsules.artefact.manifest import (
    MAX_GOLDEN,
    MAX_GOLDEN_CHARACTERS,
    Golden,
    Manifest,
    Splits,
    TrainingRecord,
)
from capsules.artefact.reference import reference
from capsules.backbones.base import LoadedBackbone
from capsules.core import Example
from capsules.data.base import Dataset
from capsules.errors import OptionError
from capsules.evaluation.runner import predict
from capsules.executors.torch import TorchExecutor
from capsules.template import Template
from capsules.training.config import TrainingConfig
from capsules.training.run import Run
from capsules.training.trainable import Trainable, words

LIBRARIES = ("capsule-server", "torch", "transformers", "tokenizers", "safetensors")
# Digits kept of golden probabilities: a hundredth of what the replay tolerates is plenty.
GOLDEN_DIGITS = 6


def finish(run: Run, *, test_rows: int = 0, metrics: Mapping[str, float] | None = None) -> Capsule:
    """The capsule of a run's best epoch, with golden examples from its validation rows.

    Args:
        run: a run of at least one epoch.
        test_rows: rows that `metrics` was measured on.
        metrics: more measurements to put in the manifest.

    Raises:
        OptionError: the run trained a linear head alone, which is not a capsule.
    """
    if run.config.variant is None:
        raise OptionError("A linear head alone is not a capsule.", field="variant")
    assert isinstance(run.learner, Trainable), "only capsules are finished"
    best = run.reports[run.best_epoch - 1]
    record = TrainingRecord(
        data_digest=run.train.digest,
        splits=Splits(train=len(run.train), validation=len(run.validation), test=test_rows),
        seed=run.config.seed,
        epochs=len(run.reports),
        best_epoch=run.best_epoch,
        batch_size=run.config.batch_size,
        learning_rate=run.learning_rate,
        metrics={
            "validation_accuracy": best.validation_accuracy,
            "validation_loss": best.validation_loss,
            **(metrics or {}),
        },
        duration_seconds=round(run.seconds, 1),
        library_versions={name: installed_version(name) for name in LIBRARIES},
    )
    manifest = draft(run.loaded, run.config, run.labels).model_copy(update={"training": record})
    tensors = {name: tensor.to(torch.float32) for name, tensor in run.best.items()}
    capsule = Capsule(manifest=manifest, tensors=tensors)
    golden = record_golden(run, capsule)
    return Capsule(manifest=manifest.model_copy(update={"golden": golden}), tensors=tensors)


def draft(loaded: LoadedBackbone, config: TrainingConfig, labels: Sequence[str]) -> Manifest:
    """What a capsule will say about itself, as far as its options tell before it is trained.

    Args:
        loaded: the frozen backbone.
        config: the options, with a variant.
        labels: in head order.

    Raises:
        OptionError: the verbalizers do not fit the backbone or the labels.
        ValidationError: the options cannot be in a manifest.
    """
    assert config.variant is not None, "a linear head alone is not a capsule"
    return Manifest(
        task=config.task,
        description=config.description,
        backbone=reference(loaded.info),
        variant=config.variant,
        length=config.length,
        layers=config.layers if isinstance(config.layers, str) else list(config.layers),
        labels=list(labels),
        verbalizers=words(loaded, config, labels),
        template=config.template,
        max_length=config.max_length,
    )


def record_golden(run: Run, capsule: Capsule) -> list[Golden]:
    """Answers to a few validation rows, each alone in its batch, as the replay sends them."""
    executor = TorchExecutor(run.loaded.backbone)
    recorded = []
    for example in pick_golden(run.validation, Template(run.config.template)):
        answer = predict(run.loaded, executor, capsule, [example.inputs])[0]
        recorded.append(
            Golden(
                inputs=dict(example.inputs),
                label=answer.label,
                probs=[round(probability, GOLDEN_DIGITS) for probability in answer.probs],
            )
        )
    return recorded


def pick_golden(validation: Dataset, template: Template) -> list[Example]:
    """Up to eight rows, the first of each label in turn, then the second, and so on.

    Rows that are too long for a capsule file are passed over.
    """
    by_label: dict[str, list[Example]] = {label: [] for label in validation.labels}
    for example in validation:
        if template.length(example.inputs) > MAX_GOLDEN_CHARACTERS:
            continue
        by_label[example.label].append(example)
    ranked = [
        (rank, position, example)
        for position, label in enumerate(validation.labels)
        for rank, example in enumerate(by_label[label])
    ]
    return [example for _, _, example in sorted(ranked, key=lambda one: one[:2])[:MAX_GOLDEN]]
