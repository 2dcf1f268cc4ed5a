"""Every setting of the server, in one frozen class.

A flag wins over an environment variable, which wins over the default. Nothing is read at import.
"""

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.callers import caller_name

PREFIX = "CAPSULE_"
VARIABLE = re.compile(rf"\b{PREFIX}[A-Z_]+")
MIB = 1024 * 1024
MAX_BATCH_ROWS = 64
"""The most that a batch has where nothing else is set."""

BATCHES_AT_ONCE = 2
"""Whose capsules are on the device together, at the least: one that runs and one that is prepared."""

# Read by the client commands and the compose file, which may share an environment with a server.
NOT_OURS = frozenset({"CAPSULE_URL", "CAPSULE_TAG", "CAPSULE_GPU_PORT"})

# What callers are named by may be secrets that were put in the wrong place.
UNTOLD = frozenset({"caller_weights"})

LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6
"""Beyond them, accounts of positions divided by a weight would no longer be told apart."""

DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]{1,4})?")

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
LogFormat = Literal["json", "console"]
Bytes = Annotated[ByteSize, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]


class SettingsError(ValueError):
    """The environment or the flags hold values that cannot be used.

    Attributes:
        problems: one sentence for each bad value, naming the flag or environment variable that it
            came in.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def upper(value: object) -> object:
    """Let a level be written in any case."""
    return value.upper() if isinstance(value, str) else value


def known_device(value: str) -> str:
    """Hold a device to the names that there are; whether it exists shows when it is used."""
    if not DEVICE.fullmatch(value):
        raise ValueError("choose auto, cpu, cuda or cuda:N")
    return value


def read_weights(value: object) -> dict[str, float]:
    """Read what share each caller gets, in a variable as JSON; names come out as they are compared.

    Raises:
        ValueError: telling what is wrong with it, and nothing that may be a secret.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value, object_pairs_hook=named_once)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"it is not JSON ({error.msg} at character {error.pos + 1})"
            ) from error
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
    if not isinstance(value, Mapping):
        raise ValueError('give a JSON object of callers and weights, such as {"10.1.2.3": 4}')
    shares = []
    for number, (caller, weight) in enumerate(value.items(), start=1):
        try:
            name = caller_name(caller)
        except ValueError as error:
            raise ValueError(f"its caller number {number} is {error}") from error
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise ValueError(f"the weight of {name} is no number")
        if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
            raise ValueError(
                f"the weight of {name} is not between {LEAST_WEIGHT:f} and {MOST_WEIGHT:,.0f}"
            )
        shares.append((name, float(weight)))
    return named_once(shares)


def named_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Pairs as a mapping.

    Raises:
        ValueError: two have the same name.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it names a caller twice")
    return found


class Settings(BaseSettings):
    """The server's settings; see :func:`load_settings`.

    Field descriptions are what the documentation and the command line show.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid"
    )

    host: str = Field(
        default="127.0.0.1", min_length=1, description="Address or host name to listen on."
    )
    port: int = Field(
        default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one."
    )
    data_dir: Path = Field(
        default=Path("./data"), description="Folder of the database; made where it is missing."
    )
    backbone: str = Field(
        default="embedded",
        min_length=1,
        description="The frozen backbone: `embedded`, a local folder or a hub id.",
    )
    device: Annotated[str, AfterValidator(known_device)] = Field(
        default="auto",
        description="Where it runs: `auto`, `cpu`, `cuda` or `cuda:N`.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="Its number format; `auto` is bfloat16 on CUDA and float32 on a CPU.",
    )
    executor: Literal["auto", "torch", "onnxruntime"] = Field(
        default="auto",
        description="What runs it: `onnxruntime`, `torch`, or `auto`, which is onnxruntime on a CPU in "
        "float32, where its answers are torch's, and torch everywhere else.",
    )
    quantization: Literal["none", "int8"] = Field(
        default="none",
        description="`int8` computes matrix products on 8-bit integers: faster, less exact; with "
        "onnxruntime only.",
    )
    compile: bool = Field(
        default=False,
        description="Compile the layers with torch, which takes longer to start and, on a CPU, a C++ "
        "compiler.",
    )
    graph_dir: Path | None = Field(
        default=None,
        description="Folder of the graphs that onnxruntime runs, exported on the first start; by "
        "default `graphs` in the data folder.",
    )
    threads: Count | None = Field(
        default=None, description="Threads of one forward pass; by default one for each core."
    )
    tokenise_threads: Count = Field(
        default=2, description="Threads that render templates and tokenise."
    )
    max_connections: Count = Field(
        default=10_000,
        description="Connections at a time; fewer where the process may not have as many open files.",
    )
    max_body_bytes: Bytes = Field(
        default=ByteSize(4 * MIB), description="Largest request body; uploads have their own."
    )
    max_artefact_bytes: Bytes = Field(
        default=ByteSize(16 * MIB), description="Largest capsule file that can be uploaded."
    )
    max_texts: Count = Field(
        default=1024, description="Most rows of one request, after `tasks` times `text`."
    )
    max_characters: Count = Field(
        default=100_000, description="Longest text of a row, in its template."
    )
    max_reply_bytes: Bytes = Field(
        default=ByteSize(32 * MIB),
        description="Most that the scores and labels of one reply may take.",
    )
    queue_rows: Count = Field(
        default=4096, description="Rows that may wait for the model, of all requests together."
    )
    caller_weights: Annotated[Mapping[str, float], NoDecode, BeforeValidator(read_weights)] = Field(
        default={},
        description="Shares of a busy model by caller, in JSON, as multiples of what others get. A "
        "caller is an address, or `sha256:` and the digest of its credentials as it sends them.",
    )
    timeout_ms: Count = Field(
        default=30_000,
        description="Time limit of a classification, and the most its `timeout_ms` may ask for.",
    )
    max_batch_rows: Count | None = Field(
        default=None,
        description="Most rows of one forward pass; by default 64 with onnxruntime and 32 with torch.",
    )
    max_batch_tokens: Count | None = Field(
        default=None,
        description="Most tokens of one forward pass, capsules included, and padding where it is "
        "computed; by default 256 with onnxruntime, 2048 with torch on a CPU and 32768 on CUDA.",
    )
    bank_slots: Count = Field(
        default=10_000, description="Capsules held on the device; the others wait in memory."
    )
    metrics_tasks: int = Field(
        default=100,
        ge=0,
        description="Tasks with a metric label of their own, the busiest; the rest are `_other`.",
    )
    train: bool = Field(
        default=True, description="Start a worker for training jobs along with the server."
    )
    train_threads: Count | None = Field(
        default=None, description="Threads of one training job; by default half of the cores."
    )
    train_concurrency: Count = Field(
        default=1, description="Training jobs that one worker runs at the same time."
    )
    train_nice: int = Field(
        default=10,
        ge=0,
        le=19,
        description="How far a worker steps back from the CPU behind the server, from 0 to 19.",
    )
    train_memory: Bytes | None = Field(
        default=None,
        description="Most memory that a worker may allocate; by default whatever the machine has.",
    )
    train_database: str | None = Field(
        default=None,
        description="Where workers keep the steps of their jobs: an URL `postgresql://...` or "
        "`sqlite:///...`; by default a file in the data folder.",
    )
    max_dataset_bytes: Bytes = Field(
        default=ByteSize(256 * MIB),
        description="Largest file of training rows, also once it is unpacked.",
    )
    max_dataset_rows: Count = Field(
        default=1_000_000, description="Most rows of a file of training rows."
    )
    load_zoo: bool = Field(
        default=True, description="Load the shipped capsules on the first start."
    )
    log_level: Annotated[LogLevel, BeforeValidator(upper)] = Field(
        default="INFO", description="Least severe log lines to write."
    )
    log_format: LogFormat = Field(
        default="json", description="`json`, a line an event, or `console`, for people."
    )
    shutdown_grace_s: float = Field(
        default=30.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds that requests in flight may take to finish on shutdown.",
    )

    @model_validator(mode="after")
    def fit_together(self) -> "Settings":
        """Refuse limits that contradict each other."""
        if self.queue_rows < self.max_texts:
            raise ValueError(
                f"{PREFIX}QUEUE_ROWS is {self.queue_rows}, less than {PREFIX}MAX_TEXTS, "
                f"{self.max_texts}: a request of that many rows would never be taken"
            )
        if self.quantization != "none" and (self.executor == "torch" or self.compile):
            raise ValueError(
                f"{PREFIX}QUANTIZATION is {self.quantization}, which torch does not do: set "
                f"{PREFIX}EXECUTOR to onnxruntime or auto, and {PREFIX}COMPILE to false"
            )
        if self.compile and self.executor == "onnxruntime":
            raise ValueError(
                f"{PREFIX}COMPILE is true, which is for torch, but {PREFIX}EXECUTOR is onnxruntime: "
                f"set {PREFIX}EXECUTOR to auto or torch, or {PREFIX}COMPILE to false"
            )
        rows = self.max_batch_rows or MAX_BATCH_ROWS
        if self.bank_slots < BATCHES_AT_ONCE * rows:
            raise ValueError(
                f"{PREFIX}BANK_SLOTS is {self.bank_slots}, less than twice {PREFIX}MAX_BATCH_ROWS, "
                f"{rows}: a batch that runs and one that is prepared may need that many capsules at "
                "once"
            )
        return self


def load_settings(**flags: Any) -> Settings:
    """Read the settings from flags and the environment.

    Args:
        flags: by field name; None stands for a flag that was not given.

    Raises:
        SettingsError: naming every value that cannot be used.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError(tuple(explain(fault, given) for fault in error.errors())) from error


def explain(fault: Mapping[str, Any], flags: Collection[str]) -> str:
    """One sentence on one fault that pydantic found.

    Args:
        fault: as pydantic tells it.
        flags: names of the settings that came as flags; the others came from the environment.
    """
    message = str(fault["msg"]).removeprefix("Value error, ")
    if fault["loc"]:
        name = str(fault["loc"][0])
        if name in UNTOLD:
            return f"{source(name, flags)} cannot be used: {message}."
        return f"{source(name, flags)} is {fault['input']!r}: {message}."
    names = {variable(name): name for name in Settings.model_fields}
    told = VARIABLE.sub(lambda found: source(names[found[0]], flags), message)
    return f"{told}."


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{name.upper()}"


def source(name: str, flags: Collection[str]) -> str:
    """What a setting is called where its value came from."""
    return f"--{name.replace('_', '-')}" if name in flags else variable(name)


def unknown_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Environment variables with our prefix that are not settings, most likely misspelt."""
    known = NOT_OURS.union(map(variable, Settings.model_fields))
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
