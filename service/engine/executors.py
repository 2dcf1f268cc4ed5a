"""Which executor runs the backbone, and what has to be there before it can."""

import asyncio
import os
import time
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog
import torch
from filelock import AsyncFileLock

from capsules.backbones.base import LoadedBackbone
from capsules.errors import OptionError
from capsules.executors.base import Executor
from capsules.executors.onnx.cache import GraphCache
from capsules.executors.onnx.graph import export_command
from capsules.executors.onnx.runtime import OnnxRuntimeExecutor
from capsules.executors.onnx.verify import QUANTIZED_TOLERANCE, TOLERANCE, difference
from capsules.executors.torch import TorchExecutor

Choice = Literal["auto", "torch", "onnxruntime"]
Quantization = Literal["none", "int8"]

LAST_WORDS = 500
"""Characters of what a failed exporter said that are worth a log line."""

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class GraphError(Exception):
    """A backbone has no graph that can be used; the message says why."""


@dataclass(frozen=True, slots=True)
class ExecutorConfig:
    """How a backbone is to be run.

    Attributes:
        backbone: as it was loaded: `embedded`, a local folder or file, or a hub id.
        choice: `auto` is onnxruntime on a CPU in float32, wherever its answers are those of torch,
            and torch everywhere else.
        quantization: `int8` runs matrix products on 8-bit integers; with onnxruntime only.
        compile: compile torch's layers.
        threads: of one forward pass; None for one a core.
        graphs: where exported graphs are kept.
    """

    backbone: str
    graphs: Path
    choice: Choice = "auto"
    quantization: Quantization = "none"
    compile: bool = False
    threads: int | None = None


async def open_executor(loaded: LoadedBackbone, config: ExecutorConfig) -> Executor:
    """Make the executor of a backbone; exports its graph where that has not been done.

    Args:
        loaded: the backbone.
        config: how it is to be run.

    Raises:
        OptionError: it cannot be run as asked for.
    """
    obstacle = obstacle_to_graphs(loaded, config)
    if obstacle is None:
        try:
            return await open_graph(loaded, config)
        except GraphError as error:
            obstacle = str(error)
            logger.warning("executor_rejected", executor="onnxruntime", reason=obstacle)
    if config.choice == "onnxruntime" or config.quantization != "none":
        field = "executor" if config.choice == "onnxruntime" else "quantization"
        raise OptionError(
            f"onnxruntime cannot run this backbone here: {obstacle}. Choose the executor `auto` or "
            "`torch`, without quantization.",
            field=field,
        )
    return TorchExecutor(loaded.backbone, compile_layers=config.compile)


def obstacle_to_graphs(loaded: LoadedBackbone, config: ExecutorConfig) -> str | None:
    """Why there is no use in looking for a graph, or None."""
    backbone = loaded.backbone
    if config.choice == "torch":
        return "the executor is to be torch"
    if config.compile:
        return "layers are to be compiled, which torch does"
    if backbone.device.type != "cpu":
        return f"it runs on {backbone.device}, and onnxruntime is for CPUs"
    if backbone.dtype != torch.float32:
        return f"its weights are {backbone.dtype}".replace("torch.", "") + ", not float32"
    if not backbone.packs:
        return f"the attention of {loaded.info.architecture} takes no packed rows"
    return None


async def open_graph(loaded: LoadedBackbone, config: ExecutorConfig) -> OnnxRuntimeExecutor:
    """Find the backbone's graph or make it, and hold it to torch's answers.

    One that was kept and proves wrong, as after a disk fault, is made anew.

    Raises:
        GraphError: it cannot be made, loaded, or trusted.
    """
    cache = GraphCache(config.graphs)
    fingerprint, quantized = loaded.info.fingerprint, config.quantization == "int8"
    try:
        async with AsyncFileLock(cache.lock_file(fingerprint, quantized=quantized)):
            path = cache.find(fingerprint, quantized=quantized)
            if path is not None:
                try:
                    return await asyncio.to_thread(verified, loaded, config, path)
                except GraphError as error:
                    logger.warning("graph_discarded", path=str(path), reason=str(error))
                    cache.discard(fingerprint, quantized=quantized)
            await make_graph(loaded, config, cache)
    except OSError as error:
        raise GraphError(f"graphs cannot be kept in {config.graphs} ({error})") from error
    path = cache.find(fingerprint, quantized=quantized)
    assert path is not None, "a graph was made"
    return await asyncio.to_thread(verified, loaded, config, path)


async def make_graph(loaded: LoadedBackbone, config: ExecutorConfig, cache: GraphCache) -> None:
    """Export the backbone's graph in a process of its own.

    Raises:
        GraphError: it failed.
        OSError: the graph cannot be kept.
    """
    fingerprint, quantized = loaded.info.fingerprint, config.quantization == "int8"
    logger.info("graph_export_started", backbone=loaded.info.id, quantization=config.quantization)
    started = time.perf_counter()
    with cache.making(fingerprint, quantized=quantized) as folder:
        command = export_command(config.backbone, fingerprint, folder, quantize=quantized)
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        try:
            _, told = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            words = told.decode(errors="replace").strip()[-LAST_WORDS:]
            raise GraphError(f"its graph could not be exported ({words})")
    seconds = round(time.perf_counter() - started, 1)
    logger.info("graph_export_finished", backbone=loaded.info.id, seconds=seconds)


def verified(loaded: LoadedBackbone, config: ExecutorConfig, path: Path) -> OnnxRuntimeExecutor:
    """Load a graph and compare it with torch.

    Raises:
        GraphError: it cannot be loaded, or gives other answers.
    """
    quantized = config.quantization == "int8"
    tolerance = QUANTIZED_TOLERANCE if quantized else TOLERANCE
    try:
        executor = OnnxRuntimeExecutor(
            loaded.backbone, path, config.threads or available_cores(), quantized=quantized
        )
        found = difference(loaded.backbone, executor)
    except Exception as error:
        raise GraphError(f"its graph cannot be run ({error})") from error
    if not found <= tolerance:
        raise GraphError(f"its graph differs from torch by {found:.2g}, more than {tolerance:g}")
    logger.info("graph_verified", backbone=loaded.info.id, difference=float(f"{found:.2g}"))
    return executor


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
