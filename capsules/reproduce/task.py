"""One set of the comparisons: how its rows become texts, its labels words, its answers a score."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from capsules.reproduce.metric import Metric
from capsules.template import Template


@dataclass(frozen=True, slots=True)
class Task:
    """A labelled set and how it is posed.

    Attributes:
        name: of the set and of its folder.
        template: turns a row's columns into the text.
        metric: the one number that methods are compared by.
        labels: the words that answer, in the order of their numbers; None takes those in the
            training rows.
        spellings: other ways in which files write a label, and the word that each stands for.
        published_rows: how many training rows the set is published with, or None.
        has_test: whether the set has a labelled test file beside a validation file. Where it has
            none, validation is carved from the training rows and the validation file is the test.
        source: where to get it, for a person.
    """

    name: str
    template: str
    metric: Metric = "accuracy"
    labels: tuple[str, ...] | None = None
    spellings: Mapping[str, str] = field(default_factory=dict)
    published_rows: int | None = None
    has_test: bool = False
    source: str = "its makers"

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns that the template names."""
        return Template(self.template).fields

    @property
    def row(self) -> str:
        """What a line of its files looks like."""
        label = self.labels[0] if self.labels else "..."
        return json.dumps({**dict.fromkeys(self.fields, "..."), "label": label})

    def word(self, label: str) -> str:
        """The word for a label as a file has it."""
        return self.spellings.get(label, label)
