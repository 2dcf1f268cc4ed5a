"""What a training job is asked to do."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

from capsules.artefact.manifest import MAX_LABELS, Label, NamedOrNumbered, TaskName, telling
from capsules.layers import NamedLayers
from capsules.template import MAX_TEMPLATE_CHARACTERS
from capsules.training.config import TrainingConfig, VariantName

MAX_METADATA = 16
"""Pairs that a client may attach to a job, as many as OpenAI's API takes."""

Metric = Literal["accuracy", "macro_f1"]
"""What two versions are compared by, on the validation rows."""

LayerNumbers = Annotated[tuple[int, ...], Strict(False)]
"""In JSON it is a list, which strict models would take for something else."""


class JobSpec(BaseModel):
    """A training job's options; those of the training itself are `TrainingConfig`'s.

    Attributes:
        labels: the labels in head order; None takes those of the training rows, sorted.
        label_field: name of the label in every row.
        validation_fraction: of the training rows, set aside where no validation rows are given.
        max_bad_rows: rows that may be left out because they cannot be used: a count (int) or a
            share (float); None tolerates a few, see `capsules.data.limits`.
        max_length: None takes the most that the backbone does, up to 512.
        activate: serve the new version under the task's bare name, if it is good enough.
        metric: what that is judged by.
        min_metric: the least that is good enough. None: better than the version now served, on
            the same validation rows; good enough anyway where none is served.
        metadata: a client's own notes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: TaskName
    description: str = Field(default="", max_length=4096)
    template: str = Field(default="{text}", min_length=1, max_length=MAX_TEMPLATE_CHARACTERS)
    labels: tuple[Label, ...] | None = Field(default=None, min_length=2, max_length=MAX_LABELS)
    label_field: str = Field(default="label", min_length=1, max_length=256)
    verbalizers: dict[str, Label] | None = None
    variant: VariantName = "addition"
    length: int = Field(default=1, ge=1, le=512)
    layers: Annotated[NamedLayers | LayerNumbers, NamedOrNumbered] = "all"
    epochs: int = Field(default=50, ge=1, le=1000)
    patience: int = Field(default=5, ge=1)
    batch_size: int = Field(default=32, ge=1, le=4096)
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_length: int | None = Field(default=None, ge=4)
    seed: int = Field(default=0, ge=0, lt=2**63)
    validation_fraction: float = Field(default=0.1, gt=0, le=0.5)
    max_bad_rows: Annotated[
        Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0, le=1)] | None,
        telling("give a number of rows, or a share of them from 0.0 to 1.0"),
    ] = None
    activate: bool = True
    metric: Metric = "accuracy"
    min_metric: float | None = Field(default=None, ge=0, le=1)
    metadata: dict[
        Annotated[str, Field(min_length=1, max_length=64)],
        Annotated[str, Field(max_length=512)],
    ] = Field(default_factory=dict, max_length=MAX_METADATA)

    def config(self, max_length: int) -> TrainingConfig:
        """The options of the training itself.

        Args:
            max_length: in tokens, for where none was asked for.
        """
        given = self.model_dump(include=set(TrainingConfig.model_fields) - {"max_length"})
        return TrainingConfig(**given, max_length=self.max_length or max_length)
