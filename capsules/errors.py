"""Everything this library raises on purpose.

CapsuleError
├── OptionError            an argument or option has a value that cannot be used
├── BackboneError          the frozen backbone cannot be had or is not supported
├── ArtefactError          a capsule file is refused
├── InputError             a text or its named inputs cannot be classified
├── DataError              a data set cannot be used
└── TrainingError          a training run cannot start or go on

Every error carries a stable `code` for programs and names, in `field`, what to change.
"""

from enum import StrEnum


class BackboneFault(StrEnum):
    """Why a backbone was refused."""

    NOT_FOUND = "backbone_not_found"
    UNREACHABLE = "backbone_unreachable"
    CORRUPT = "backbone_corrupt"
    UNSUPPORTED_FAMILY = "unsupported_family"
    NO_FAST_TOKENIZER = "no_fast_tokenizer"


class ArtefactFault(StrEnum):
    """Why a capsule file was refused; one member per check."""

    TOO_SMALL = "artefact_too_small"
    NOT_SAFETENSORS = "not_safetensors"
    HEADER_TOO_LARGE = "header_too_large"
    INVALID_HEADER = "invalid_header"
    TRUNCATED = "artefact_truncated"
    MISSING_MANIFEST = "missing_manifest"
    INVALID_MANIFEST = "invalid_manifest"
    UNSUPPORTED_SCHEMA_VERSION = "unsupported_schema_version"
    UNSUPPORTED_VARIANT = "unsupported_variant"
    UNSUPPORTED_LAYERS = "unsupported_layers"
    INVALID_LABELS = "invalid_labels"
    INVALID_TEMPLATE = "invalid_template"
    INVALID_MAX_LENGTH = "invalid_max_length"
    MISSING_TENSOR = "missing_tensor"
    UNEXPECTED_TENSOR = "unexpected_tensor"
    TENSOR_DTYPE = "tensor_dtype"
    TENSOR_SHAPE = "tensor_shape"
    NON_FINITE_TENSOR = "non_finite_tensor"
    BACKBONE_MISMATCH = "backbone_mismatch"
    GOLDEN_MISMATCH = "golden_mismatch"


class FileFault(StrEnum):
    """Why a capsule file on disk was not even looked into."""

    UNREADABLE = "unreadable_file"
    TOO_LARGE = "file_too_large"


class InputFault(StrEnum):
    """Why a text could not be classified."""

    EMPTY_TEXT = "empty_text"
    INVALID_TEXT = "invalid_text"
    MISSING_INPUT = "missing_input"
    UNEXPECTED_INPUT = "unexpected_input"
    TEXT_TOO_LONG = "text_too_long"


class DataFault(StrEnum):
    """Why a data set was refused."""

    EMPTY_DATASET = "empty_dataset"
    TOO_MANY_BAD_ROWS = "too_many_bad_rows"
    UNREADABLE_FILE = "unreadable_file"
    UNSUPPORTED_FORMAT = "unsupported_format"
    ONE_CLASS = "one_class"
    MISSING_COLUMN = "missing_column"
    DUPLICATE_COLUMN = "duplicate_column"
    UNKNOWN_LABEL = "unknown_label"
    FILE_TOO_LARGE = "file_too_large"
    ROW_TOO_LARGE = "row_too_large"
    TOO_MANY_ROWS = "too_many_rows"
    LENGTH_MISMATCH = "length_mismatch"
    SPLIT_TOO_SMALL = "split_too_small"
    UNMEASURED_LABEL = "unmeasured_label"


class TrainingFault(StrEnum):
    """Why a training run stopped."""

    DIVERGED = "training_diverged"
    CHECKPOINT_MISMATCH = "checkpoint_mismatch"
    CANCELLED = "training_cancelled"
    OUT_OF_MEMORY = "out_of_memory"
    UNWRITABLE_OUTPUT = "unwritable_output"


class CapsuleError(Exception):
    """Base of the tree.

    Attributes:
        code: stable identifier of the fault, in snake case.
        message: one sentence for a person, with the remedy.
        field: the option, tensor, key or input at fault, or None.
    """

    def __init__(self, message: str, *, code: str, field: str | None = None) -> None:
        super().__init__(message)
        self.code = str(code)
        self.message = message
        self.field = field


class OptionError(CapsuleError):
    """An argument or option has a value that cannot be used."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message, code="invalid_option", field=field)


class BackboneError(CapsuleError):
    """The frozen backbone cannot be had or is not supported."""

    def __init__(
        self, message: str, *, code: BackboneFault, field: str | None = "backbone"
    ) -> None:
        super().__init__(message, code=code, field=field)


class ArtefactError(CapsuleError):
    """A capsule file is refused."""

    def __init__(
        self, message: str, *, code: ArtefactFault | FileFault, field: str | None = None
    ) -> None:
        super().__init__(message, code=code, field=field)


class InputError(CapsuleError):
    """A text or its named inputs cannot be classified."""

    def __init__(self, message: str, *, code: InputFault, field: str | None = "text") -> None:
        super().__init__(message, code=code, field=field)


class DataError(CapsuleError):
    """A data set cannot be used."""

    def __init__(self, message: str, *, code: DataFault, field: str | None = None) -> None:
        super().__init__(message, code=code, field=field)


class TrainingError(CapsuleError):
    """A training run cannot start or go on."""

    def __init__(self, message: str, *, code: TrainingFault, field: str | None = None) -> None:
        super().__init__(message, code=code, field=field)
