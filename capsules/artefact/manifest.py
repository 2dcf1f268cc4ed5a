"""What a capsule file says about itself; the source of the published JSON Schema."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capsules.core import MAX_LABEL_CHARACTERS
from capsules.errors import ArtefactError, ArtefactFault
from capsules.template import MAX_TEMPLATE_CHARACTERS

SCHEMA_VERSION = 1
TASK_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
RESERVED_NAMES = frozenset({"latest"})
MAX_LABELS = 10_000
MAX_GOLDEN = 8

TaskName = Annotated[str, Field(pattern=rf"^{TASK_NAME.pattern}$", examples=["trec"])]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL_CHARACTERS)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Record(BaseModel):
    """Base of the manifest's parts: frozen, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BackboneRef(Record):
    """The backbone a capsule was trained on."""

    id: str = Field(min_length=1, max_length=512, description="Its name, for people.")
    family: Literal["encoder-only", "decoder-only", "encoder-decoder"]
    hidden_size: int = Field(gt=0, description="D, the width of the hidden states.")
    num_layers: int = Field(gt=0, description="N, the layers that can be injected.")
    fingerprint: Sha256 = Field(
        description="sha256 of weights, tokenizer and configuration; decides where it is accepted."
    )


class Golden(Record):
    """An example the trainer answered, replayed when the capsule is uploaded."""

    inputs: dict[str, str]
    label: Label
    probs: list[Probability] = Field(description="In the order of `labels`.")


class Splits(Record):
    """How many rows each split held."""

    train: int = Field(ge=0)
    validation: int = Field(ge=0)
    test: int = Field(default=0, ge=0)


class TrainingRecord(Record):
    """How a capsule came to be."""

    data_digest: Sha256 = Field(description="sha256 of the training rows.")
    splits: Splits
    seed: int
    epochs: int = Field(ge=0, description="Epochs run, early stopping included.")
    best_epoch: int = Field(ge=0, description="The epoch whose tensors these are, from 1.")
    batch_size: int = Field(gt=0)
    learning_rate: float = Field(gt=0, allow_inf_nan=False)
    metrics: dict[str, Annotated[float, Field(allow_inf_nan=False)]]
    duration_seconds: float = Field(ge=0, allow_inf_nan=False)
    library_versions: dict[str, str]


class Manifest(Record):
    """The JSON under the header key `capsule`."""

    schema_version: Literal[1] = 1
    task: TaskName
    description: str = Field(default="", max_length=4096)
    backbone: BackboneRef
    variant: str = Field(default="addition", min_length=1, max_length=64)
    length: int = Field(default=1, ge=1, le=512, description="Capsule tokens per layer.")
    layers: Literal["all"] = Field(default="all", description="Which layers are injected.")
    labels: list[Label] = Field(
        min_length=2, max_length=MAX_LABELS, description="In the order of the head's rows."
    )
    verbalizers: dict[str, str] | None = Field(
        default=None, description="Label to word, for encoder-decoder backbones."
    )
    template: str = Field(default="{text}", min_length=1, max_length=MAX_TEMPLATE_CHARACTERS)
    max_length: int = Field(
        default=512, ge=2, description="Longest sequence in tokens, the capsule's included."
    )
    training: TrainingRecord | None = None
    golden: list[Golden] = Field(default_factory=list, max_length=MAX_GOLDEN)

    @property
    def injections(self) -> int:
        """How many layers are injected, I."""
        return self.backbone.num_layers


# A fault of one of these keys has a code of its own; of any other, `invalid_manifest`.
FAULT_OF_KEY = {
    "schema_version": ArtefactFault.UNSUPPORTED_SCHEMA_VERSION,
    "layers": ArtefactFault.UNSUPPORTED_LAYERS,
    "labels": ArtefactFault.INVALID_LABELS,
    "template": ArtefactFault.INVALID_TEMPLATE,
    "max_length": ArtefactFault.INVALID_MAX_LENGTH,
}


def parse_manifest(value: Mapping[str, Any]) -> Manifest:
    """Check a manifest's own rules, without tensors or backbone.

    Args:
        value: the decoded JSON object.

    Raises:
        ArtefactError: naming the first key at fault.
    """
    # True equals 1 in Python, though not in JSON.
    if isinstance(value.get("schema_version", True), bool):
        raise ArtefactError(
            "The manifest has no number as schema_version; this library reads version "
            f"{SCHEMA_VERSION}.",
            code=ArtefactFault.UNSUPPORTED_SCHEMA_VERSION,
            field="schema_version",
        )
    try:
        # Strict, so that "1" is not taken for 1 nor 1 for true.
        return Manifest.model_validate(dict(value), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ArtefactError(
            f"The manifest's {key or 'value'} is not valid: {first['msg']}.",
            code=FAULT_OF_KEY.get(str(first["loc"][0]), ArtefactFault.INVALID_MANIFEST)
            if first["loc"]
            else ArtefactFault.INVALID_MANIFEST,
            field=key or None,
        ) from error


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the manifest, as published in the documentation."""
    schema = Manifest.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"Capsule manifest, schema version {SCHEMA_VERSION}",
        # The model has a default for whoever writes a manifest; who reads one must know it.
        "required": ["schema_version", *schema["required"]],
    }
