"""What a training run is asked to do."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from capsules.artefact.manifest import Label, NamedOrNumbered, TaskName
from capsules.layers import NamedLayers

if TYPE_CHECKING:
    from capsules.backbones.base import Family

# One for each family and for every task. Found on an encoder, and taken over for the others; see
# docs/decisions/0007-learning-rate.md.
DEFAULT_LEARNING_RATE: dict["Family", float] = {
    "encoder-only": 0.02,
    "decoder-only": 0.02,
    "encoder-decoder": 0.02,
}
# A head reads hundreds of features at once, so a step of the same size moves its scores far more
# than a capsule's vectors move the layers.
HEAD_RATE = 0.2


VariantName = Literal[
    "addition", "prepending", "extraction", "projection", "task-only", "instance-only"
]


class TrainingConfig(BaseModel):
    """One run's options; equal options, data and backbone give equal tensors.

    Attributes:
        task: name of the task.
        description: for people, kept in the manifest.
        template: turns named inputs into the text.
        variant: how capsule tokens are formed; None trains a linear head alone, the baseline.
        length: capsule tokens per layer.
        layers: which layers are injected; numbers count from 1.
        verbalizers: label to word, for backbones that answer in words; None takes the labels.
        epochs: at most this many; the learning rate falls linearly to zero over them.
        patience: stop after this many epochs without a better validation accuracy.
        batch_size: rows a step.
        learning_rate: of the capsule at the start; None takes the family's default. The head
            learns at a fifth of it.
        max_length: longest sequence in tokens, the capsule's included.
        seed: of initial values and data order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: TaskName
    description: str = ""
    template: str = "{text}"
    variant: VariantName | None = "addition"
    length: int = Field(default=1, ge=1, le=512)
    layers: Annotated[NamedLayers | tuple[int, ...], NamedOrNumbered] = "all"
    verbalizers: dict[str, Label] | None = None
    epochs: int = Field(default=50, ge=1, le=1000)
    patience: int = Field(default=5, ge=1)
    batch_size: int = Field(default=32, ge=1, le=4096)
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_length: int = Field(default=512, ge=4)
    seed: int = Field(default=0, ge=0, lt=2**63)
