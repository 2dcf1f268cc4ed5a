"""How good a capsule is on labelled rows, in a form that stays small however many labels there are."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from capsules.evaluation.metrics import Scores, encode
from service.jobs.records import Split
from service.jobs.spec import Metric

MATRIX_LABELS = 100
"""With more labels, a confusion matrix would outgrow the capsule that it is about."""

MAX_CONFUSIONS = 100

Pair = tuple[int, int]
"""Positions of a row's true and predicted label."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What :class:`capsules.evaluation.metrics.Report` tells, without a matrix in memory.

    Attributes:
        labels: in head order.
        scores: accuracy, macro F1 and the scores by label.
        pairs: rows by true and predicted label; pairs without a row are left out.
    """

    labels: tuple[str, ...]
    scores: Scores
    pairs: Counter[Pair]

    @classmethod
    def of(
        cls, truth: Sequence[str], predicted: Sequence[str], labels: Sequence[str]
    ) -> "Evaluation":
        """Compare predicted labels with the true ones, row by row.

        Args:
            truth: true label of each of n rows, n > 0.
            predicted: predicted label of each.
            labels: all there may be, in head order.
        """
        index = {label: position for position, label in enumerate(labels)}
        true_ids = encode(truth, index, field="truth")
        predicted_ids = encode(predicted, index, field="predicted")
        return cls(
            labels=tuple(labels),
            scores=Scores.of(true_ids, predicted_ids, labels=labels),
            pairs=Counter(zip(true_ids.tolist(), predicted_ids.tolist(), strict=True)),
        )

    def score(self, metric: Metric) -> float:
        """What versions are compared by."""
        return self.scores.accuracy if metric == "accuracy" else self.scores.macro_f1

    def document(self, split: Split) -> dict[str, Any]:
        """What is kept with a version: the report, with its split and its largest confusions.

        `confusion` is null where the labels are too many for it; `confusions` has the pairs of
        labels that are confused most often, most rows first.
        """
        return {
            "split": split,
            "examples": self.pairs.total(),
            "accuracy": self.scores.accuracy,
            "macro_f1": self.scores.macro_f1,
            "per_class": [score.model_dump() for score in self.scores.per_class],
            "confusion": self.matrix(),
            "confusions": self.confusions(),
        }

    def matrix(self) -> list[list[int]] | None:
        """Rows by true label (outer) and predicted label (inner), unless there are many labels."""
        every = range(len(self.labels))
        if len(self.labels) > MATRIX_LABELS:
            return None
        return [[self.pairs[true, predicted] for predicted in every] for true in every]

    def confusions(self) -> list[dict[str, Any]]:
        """The pairs of different labels with most rows, at most a hundred."""
        wrong = [(-rows, *pair) for pair, rows in self.pairs.items() if pair[0] != pair[1]]
        return [
            {
                "label": self.labels[true],
                "predicted": self.labels[predicted],
                "examples": -negative,
            }
            for negative, true, predicted in sorted(wrong)[:MAX_CONFUSIONS]
        ]
