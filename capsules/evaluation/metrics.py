"""Accuracy, F1 and confusion of predicted labels, as one record."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, FiniteFloat, NonNegativeInt, model_validator
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from capsules.errors import DataError, DataFault


class ClassScore(BaseModel):
    """How well one label is told from the others.

    Attributes:
        label: the label.
        precision: right among the rows predicted as it; 0 if none was.
        recall: right among its own rows; 0 if it has none.
        f1: harmonic mean of the two; 0 if both are.
        support: its own rows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    precision: FiniteFloat
    recall: FiniteFloat
    f1: FiniteFloat
    support: NonNegativeInt


@dataclass(frozen=True, slots=True)
class Scores:
    """What a report says but for the confusion, whose size grows with the square of the labels.

    Attributes:
        accuracy: see `Report`.
        macro_f1: see `Report`.
        per_class: see `Report`.
    """

    accuracy: float
    macro_f1: float
    per_class: tuple[ClassScore, ...]

    @classmethod
    def of(cls, truth: np.ndarray, predicted: np.ndarray, *, labels: Sequence[str]) -> "Scores":
        """Compare label indices, [rows] int64 each, every one of them within `labels`."""
        precision, recall, f1, support = precision_recall_fscore_support(
            truth, predicted, labels=np.arange(len(labels)), zero_division=0.0
        )
        occurring = np.union1d(truth, predicted)
        return cls(
            accuracy=float(np.mean(truth == predicted)),
            macro_f1=float(np.mean(f1[occurring])),
            per_class=tuple(
                ClassScore(
                    label=label,
                    precision=float(precision[i]),
                    recall=float(recall[i]),
                    f1=float(f1[i]),
                    support=int(support[i]),
                )
                for i, label in enumerate(labels)
            ),
        )


class Report(BaseModel):
    """The evaluation of a capsule on labelled rows.

    Write it with `model_dump_json` and read it back with `model_validate_json`.

    Attributes:
        examples: number of rows.
        accuracy: share of rows predicted right.
        macro_f1: mean F1 over the labels that occur among the true or the predicted ones. A label
            that occurs in neither says nothing, and is left out.
        per_class: scores by label, in head order.
        confusion: rows counted by true label (outer) and predicted label (inner), in head order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    examples: NonNegativeInt
    accuracy: FiniteFloat
    macro_f1: FiniteFloat
    per_class: tuple[ClassScore, ...]
    confusion: tuple[tuple[NonNegativeInt, ...], ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in head order."""
        return tuple(score.label for score in self.per_class)

    @model_validator(mode="after")
    def check_shape(self) -> "Report":
        """Refuse a confusion matrix that does not fit the labels and rows."""
        size = len(self.per_class)
        if len(self.confusion) != size or any(len(row) != size for row in self.confusion):
            raise ValueError(f"confusion must be {size} by {size}, as there are {size} labels")
        if sum(map(sum, self.confusion)) != self.examples:
            raise ValueError("confusion must add up to examples")
        return self

    @classmethod
    def from_labels(
        cls, truth: Sequence[str], predicted: Sequence[str], *, labels: Sequence[str]
    ) -> "Report":
        """Compare predicted labels with the true ones.

        Args:
            truth: true label of each row.
            predicted: predicted label of each row, in the same order.
            labels: all labels of the capsule, in head order; some may occur in no row.

        Raises:
            DataError: there is no row, the lengths differ, or a label is not among `labels`.
        """
        if len(truth) != len(predicted):
            raise DataError(
                f"{len(predicted)} predictions do not match {len(truth)} true labels;"
                " give one prediction for each row.",
                code=DataFault.LENGTH_MISMATCH,
                field="predicted",
            )
        if not truth:
            raise DataError(
                "There is no row to evaluate; give at least one.", code=DataFault.EMPTY_DATASET
            )
        index = {label: number for number, label in enumerate(labels)}
        true_ids = encode(truth, index, field="truth")
        predicted_ids = encode(predicted, index, field="predicted")
        return cls.from_indices(true_ids, predicted_ids, labels=labels)

    @classmethod
    def from_indices(
        cls, truth: np.ndarray, predicted: np.ndarray, *, labels: Sequence[str]
    ) -> "Report":
        """Compare label indices, [rows] int64 each, every one of them within `labels`."""
        scores = Scores.of(truth, predicted, labels=labels)
        every = np.arange(len(labels))
        return cls(
            examples=len(truth),
            accuracy=scores.accuracy,
            macro_f1=scores.macro_f1,
            per_class=scores.per_class,
            confusion=tuple(
                tuple(row) for row in confusion_matrix(truth, predicted, labels=every).tolist()
            ),
        )


def encode(names: Sequence[str], index: dict[str, int], *, field: str) -> np.ndarray:
    """Label names as indices, [rows] int64.

    Raises:
        DataError: a name is not in `index`.
    """
    if unknown := sorted(set(names).difference(index)):
        raise DataError(
            f"{field} has the label {unknown[0]!r}, which the capsule does not have;"
            " relabel these rows or leave them out.",
            code=DataFault.UNKNOWN_LABEL,
            field=field,
        )
    return np.array([index[name] for name in names], dtype=np.int64)
