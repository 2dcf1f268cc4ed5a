"""The live objects of one server, shared by all its requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypedDict

from service.callers import Callers
from service.desk.desk import Desk
from service.engine.records import Outcome, RowRequest
from service.errors import Unavailable
from service.metrics import Metrics
from service.registry.registry import Registry
from service.settings import Settings

RETRY_AFTER_S = {"warming": 2, "draining": 5, "engine_stopped": 10}
EXPLANATIONS = {
    "warming": "The server is warming up; send the request again shortly.",
    "draining": "The server is shutting down; send the request to another one.",
    "engine_stopped": "The model has stopped; the server has to be restarted.",
}


class Classifier(Protocol):
    """The engine, as far as requests need it."""

    @property
    def healthy(self) -> bool:
        """Whether it still answers."""
        ...

    async def classify(
        self,
        rows: Sequence[RowRequest],
        *,
        timeout: float,  # noqa: ASYNC109 - the engine's own deadline, which also drops queued rows
        caller: str = "",
    ) -> Outcome:
        """Answer rows, within `timeout` seconds; callers with different keys take turns."""
        ...


@dataclass(frozen=True, slots=True)
class BackboneFacts:
    """What `GET /v1/backbone` tells.

    Attributes:
        id: name a person knows it by.
        family: what reads the result.
        architecture: the model type of its configuration.
        hidden_size: D.
        num_layers: N.
        parameters: how many weights it has.
        vocab_size: rows of its token embedding.
        max_tokens: longest text in tokens, special tokens included.
        fingerprint: hex sha256 of its weights, tokenizer and configuration.
        device: where it runs.
        dtype: its number format.
        executor: what runs it.
        path: the folder on the server that it was loaded from.
    """

    id: str
    family: str
    architecture: str
    hidden_size: int
    num_layers: int
    parameters: int
    vocab_size: int
    max_tokens: int
    fingerprint: str
    device: str
    dtype: str
    executor: str
    path: str


@dataclass(frozen=True, slots=True)
class Warm:
    """What exists only once the server has warmed up.

    Attributes:
        engine: answers texts.
        registry: names capsules, and takes them in.
        backbone: what clients are told of it.
        jobs: takes in training jobs, and answers for them.
    """

    engine: Classifier
    registry: Registry
    backbone: BackboneFacts
    jobs: Desk


@dataclass(slots=True)
class Live:
    """A server from its first request to its last.

    Attributes:
        settings: as it was started with.
        metrics: of this server alone.
        phase: `warming`, then `ready`, then `draining`.
        warm: set from `ready` on.
        callers: tells clients apart.
    """

    settings: Settings
    metrics: Metrics
    phase: Literal["warming", "ready", "draining"] = "warming"
    warm: Warm | None = field(default=None)
    callers: Callers = field(init=False)

    def __post_init__(self) -> None:
        self.callers = Callers(self.settings.caller_weights)

    def open(self, warm: Warm) -> None:
        """Start to serve, unless the server is on its way out already."""
        self.warm = warm
        if self.phase == "warming":
            self.phase = "ready"

    def drain(self) -> None:
        """Take no more work."""
        self.phase = "draining"

    def require_warm(self) -> Warm:
        """What requests are served with.

        Raises:
            Unavailable: `warming`, `draining` or `engine_stopped`.
        """
        if self.phase != "ready" or self.warm is None:
            raise unavailable(self.phase)
        self.require_alive()
        return self.warm

    def require_alive(self) -> None:
        """Tell what only a restart mends.

        Raises:
            Unavailable: `engine_stopped`.
        """
        if self.phase == "ready" and self.warm is not None and not self.warm.engine.healthy:
            raise unavailable("engine_stopped")


class State(TypedDict):
    """What the lifespan gives to every request."""

    live: Live


def unavailable(code: str) -> Unavailable:
    """The error for a phase in which no work is taken."""
    return Unavailable(EXPLANATIONS[code], code=code, retry_after=RETRY_AFTER_S[code])
