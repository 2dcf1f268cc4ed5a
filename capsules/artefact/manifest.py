"""What a capsule file says about itself; the source of the published JSON Schema."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from capsules.core import MAX_LABEL_CHARACTERS
from capsules.errors import ArtefactError, ArtefactFault
from capsules.layers import NamedLayers, injected_layers
from capsules.template import MAX_TEMPLATE_CHARACTERS

SCHEMA_VERSION = 1
TASK_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
RESERVED_NAMES = frozenset({"latest"})
MAX_LABELS = 10_000
# Far more than any backbone has; what a file claims is counted out layer by layer.
MAX_LAYERS = 10_000
MAX_GOLDEN = 8
# Of one example in its template; as long as a text that a server takes by default.
MAX_GOLDEN_CHARACTERS = 100_000


def telling(rule: str) -> WrapValidator:
    """Tell of whatever is wrong with a value as one rule, in words, not by pattern or case."""

    def check(value: object, inner: ValidatorFunctionWrapHandler) -> object:
        try:
            return inner(value)
        except ValidationError as error:
            raise PydanticCustomError("rule", "{rule}", {"rule": rule}) from error

    return WrapValidator(check)


TaskName = Annotated[
    str,
    Field(pattern=rf"^{TASK_NAME.pattern}$", examples=["trec"]),
    telling("give 1 to 63 of a-z 0-9 . _ -, the first a letter or digit"),
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$"), telling("give a sha256 as 64 of 0-9 a-f")]
Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL_CHARACTERS)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
NamedOrNumbered = telling(
    f"give one of {', '.join(get_args(NamedLayers))}, or a list of layer numbers from 1"
)


class Record(BaseModel):
    """Base of the manifest's parts: frozen, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BackboneRef(Record):
    """The backbone a capsule was trained on."""

    id: str = Field(min_length=1, max_length=512, description="Its name, for people.")
    family: Literal["encoder-only", "decoder-only", "encoder-decoder"]
    hidden_size: int = Field(gt=0, description="D, the width of the hidden states.")
    num_layers: int = Field(gt=0, le=MAX_LAYERS, description="N, the layers that can be injected.")
    fingerprint: Sha256 = Field(
        description="sha256 of weights, tokenizer and configuration; decides where it is accepted."
    )


class Golden(Record):
    """An example the trainer answered, replayed when the capsule is uploaded."""

    inputs: dict[str, str]
    label: Label
    probs: Annotated[list[Probability], FailFast()] = Field(
        max_length=MAX_LABELS, description="In the order of `labels`."
    )


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
    layers: Annotated[NamedLayers | list[int], NamedOrNumbered] = Field(
        default="all", description="Which layers are injected; a list counts them from 1."
    )
    labels: Annotated[list[Label], FailFast()] = Field(
        min_length=2, max_length=MAX_LABELS, description="In the order of the head's rows."
    )
    verbalizers: dict[str, Label] | None = Field(
        default=None, description="Label to word, for encoder-decoder backbones."
    )
    template: str = Field(default="{text}", min_length=1, max_length=MAX_TEMPLATE_CHARACTERS)
    max_length: int = Field(
        default=512, ge=2, description="Longest sequence in tokens, the capsule's included."
    )
    training: TrainingRecord | None = None
    golden: Annotated[list[Golden], FailFast()] = Field(default_factory=list, max_length=MAX_GOLDEN)

    @property
    def injected(self) -> tuple[int, ...]:
        """Indices of the layers that are injected, from 0.

        Raises:
            OptionError: `layers` does not fit the backbone's.
        """
        return injected_layers(self.layers, self.backbone.num_layers)

    @property
    def injections(self) -> int:
        """How many layers are injected, I."""
        return len(self.injected)

    @property
    def words(self) -> dict[str, str] | None:
        """The verbalizers, in the order of the labels."""
        if self.verbalizers is None:
            return None
        return {label: self.verbalizers[label] for label in self.labels}


# A fault of one of these keys has a code of its own; of any other, `invalid_manifest`.
FAULT_OF_KEY = {
    "schema_version": ArtefactFault.UNSUPPORTED_SCHEMA_VERSION,
    "layers": ArtefactFault.UNSUPPORTED_LAYERS,
    "labels": ArtefactFault.INVALID_LABELS,
    "template": ArtefactFault.INVALID_TEMPLATE,
    "max_length": ArtefactFault.INVALID_MAX_LENGTH,
}


RECORD_AT: Mapping[str, type[Record]] = {
    "backbone": BackboneRef,
    "golden": Golden,
    "splits": Splits,
    "training": TrainingRecord,
}


def parse_manifest(value: Mapping[str, Any]) -> Manifest:
    """Check a manifest's own rules, without tensors or backbone.

    Args:
        value: the decoded JSON object.

    Raises:
        ArtefactError: naming the first key at fault.
    """
    # True and 1.0 equal 1 in Python.
    if isinstance(value.get("schema_version", True), bool | float):
        raise ArtefactError(
            "The manifest has no whole number as schema_version; this library reads version "
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
        message = first["msg"]
        if first["type"] == "extra_forbidden":
            message = f"it is none of {', '.join(known_keys(first['loc']))}"
        raise ArtefactError(
            f"The manifest's {key or 'value'} is not valid: {message}.",
            code=FAULT_OF_KEY.get(str(first["loc"][0]), ArtefactFault.INVALID_MANIFEST)
            if first["loc"]
            else ArtefactFault.INVALID_MANIFEST,
            field=key or None,
        ) from error


def known_keys(location: Sequence[str | int]) -> list[str]:
    """The keys that are known where an unknown one was found."""
    parents = [part for part in location[:-1] if isinstance(part, str)]
    record = RECORD_AT[parents[-1]] if parents else Manifest
    return list(record.model_fields)


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
