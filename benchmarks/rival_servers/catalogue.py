"""The servers that ours is measured against: how each is started, asked and understood."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import ROOT
from benchmarks.server import HOST

ENVIRONMENTS = ROOT / "build" / "rivals"
INSTALL = "make rivals-install"
MODEL_NAME = "rival"

INFINITY = "Infinity, torch"
INFINITY_EAGER = "Infinity, torch, not compiled"
INFINITY_ONNX = "Infinity, optimum (onnx)"
LITSERVE = "LitServe"
MOSEC = "mosec"


@dataclass(frozen=True, slots=True)
class Rival:
    """A server that classifies with one model and one head.

    Attributes:
        name: what results call it.
        environment: the folder of its virtual environment.
        program: of the environment's `bin`.
        arguments: by the port that it is to listen on.
        path: that texts are posted to.
        body: the request for a text, JSON.
        scores: the probability of each label, of a reply's body.
        in_model: whether it is started in the model's folder, which it then knows as `.`; else in
            the project's.
        onnx: whether it needs the model as an ONNX graph.
    """

    name: str
    environment: Path
    program: str
    arguments: Callable[[int], tuple[str, ...]]
    path: str
    body: Callable[[str], str]
    scores: Callable[[str], Mapping[str, float]]
    in_model: bool = False
    onnx: bool = False

    @property
    def installed(self) -> bool:
        """Whether its environment is there."""
        return self.executable(self.program).exists()

    def executable(self, name: str) -> Path:
        """A program of its environment."""
        return self.environment / "bin" / name


def infinity(name: str, *options: str, onnx: bool = False) -> Rival:
    """Infinity with further options.

    Without `--no-model-warmup` it spends minutes on texts of 512 tokens before it listens; the
    benchmark warms it up on texts of the lengths that it is then measured with.
    """

    def arguments(port: int) -> tuple[str, ...]:
        return (
            *("v2", "--model-id", ".", "--served-model-name", MODEL_NAME),
            *("--host", HOST, "--port", str(port), "--device", "cpu"),
            *("--no-model-warmup", "--no-bettertransformer", *options),
        )

    def scores(reply: str) -> Mapping[str, float]:
        (labels,) = json.loads(reply)["data"]
        return {label["label"]: label["score"] for label in labels}

    return Rival(
        name=name,
        environment=ENVIRONMENTS / "infinity",
        program="infinity_emb",
        arguments=arguments,
        path="/classify",
        body=lambda text: json.dumps({"model": MODEL_NAME, "input": [text]}),
        scores=scores,
        # Its optimum engine finds a local graph only where the model's folder is `.`.
        in_model=True,
        onnx=onnx,
    )


def app(name: str, path: str, arguments: Callable[[int], tuple[str, ...]]) -> Rival:
    """One of the apps beside this file."""
    return Rival(
        name=name,
        environment=ENVIRONMENTS / "servers",
        program="python",
        arguments=arguments,
        path=path,
        body=lambda text: json.dumps({"text": text}),
        scores=json.loads,
    )


RIVALS = (
    infinity(INFINITY),
    infinity(INFINITY_EAGER, "--no-compile"),
    infinity(INFINITY_ONNX, "--engine", "optimum", onnx=True),
    app(
        LITSERVE,
        "/predict",
        lambda port: ("-m", "benchmarks.rival_servers.litserve_app", str(port)),
    ),
    app(
        MOSEC,
        "/inference",
        lambda port: (
            *("-m", "benchmarks.rival_servers.mosec_app"),
            *("--address", HOST, "--port", str(port)),
        ),
    ),
)
