"""Which executor runs the backbone, and what has to be there before it can."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog
import torch
from filelock import AsyncFileLock

from capsules.backbones.base import LoadedBackbone
from capsules.core import TokenBatch
from capsules.errors import OptionError
from capsules.executors.base import Executor
from capsules.executors.onnx.cache import GraphCache
from capsules.executors.onnx.graph import export_command
from capsules.executors.onnx.runtime import OnnxRuntimeExecutor
from capsules.executors.onnx.verify import (
    FEATURE_TOLERANCE,
    QUANTIZED_FEATURE_TOLERANCE,
    difference,
)
from capsules.executors.torch import TorchExecutor
from service.engine.warm_up import blank_prompts

Choice = Literal["auto", "torch", "onnxruntime"]
Quantization = Literal["none", "int8"]

LAST_WORDS = 500
"""Characters of what a failed exporter or compiler said that are worth a log line."""

SHIPPED = ("share", "capsule", "graphs")
"""Where graphs are that came with the installation, in the environment's folder; only read."""

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class GraphError(Exception):
    """A backbone has no graph that can be used; the message says why."""


class WrongGraphError(GraphError):
    """It has one that gives other answers than torch."""


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
        shipped: where graphs may be as well, which is only read.
    """

    backbone: str
    graphs: Path
    shipped: Path = Path(sys.prefix, *SHIPPED)
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
    elif config.choice == "auto":
        logger.info("executor_passed_over", executor="onnxruntime", reason=obstacle)
    if config.choice == "onnxruntime" or config.quantization != "none":
        field = "executor" if config.choice == "onnxruntime" else "quantization"
        raise OptionError(
            f"onnxruntime cannot run this backbone here: {obstacle}. Set CAPSULE_EXECUTOR to auto "
            "or torch, and CAPSULE_QUANTIZATION to none.",
            field=field,
        )
    executor = TorchExecutor(loaded.backbone, compile_layers=config.compile)
    if config.compile:
        await asyncio.to_thread(try_compiler, loaded, executor)
    return executor


def try_compiler(loaded: LoadedBackbone, executor: Executor) -> None:
    """Have the layers compiled once, so that a compiler that is missing is told at the start.

    Raises:
        OptionError: it cannot be done.
    """
    token = torch.full((2, 4), loaded.tokeniser.pad_id, dtype=torch.int64)
    tokens = TokenBatch(input_ids=token, attention_mask=torch.ones_like(token, dtype=torch.bool))
    try:
        executor.features(tokens, blank_prompts(loaded.info, len(tokens), executor.device))
    except Exception as error:
        raise OptionError(
            f"The layers cannot be compiled here ({first_line(str(error))}). Install a C++ compiler "
            "such as g++, or set CAPSULE_COMPILE to false.",
            field="compile",
        ) from error


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

    One that was kept and proves wrong, as after a disk fault, is made anew. One that proves wrong
    as it was made is not made again: it would come out the same.

    Raises:
        GraphError: it cannot be made, loaded, or trusted, or could not be when it was made.
    """
    cache = GraphCache(config.graphs)
    fingerprint, quantized = loaded.info.fingerprint, config.quantization == "int8"
    unusable: int | None = None
    for folder in (GraphCache(config.shipped), cache):
        # Without the lock, which a folder that can only be read has no place for.
        path = folder.find(fingerprint, quantized=quantized)
        unusable = inode(path)
        executor = await usable(loaded, config, path)
        if executor is not None:
            return executor
    check_not_refused(cache, fingerprint, quantized=quantized)
    try:
        async with AsyncFileLock(cache.lock_file(fingerprint, quantized=quantized)):
            # Another server may have made one while this one waited.
            path = cache.find(fingerprint, quantized=quantized)
            if inode(path) != unusable:
                executor = await usable(loaded, config, path)
                if executor is not None:
                    return executor
            cache.discard(fingerprint, quantized=quantized)
            check_not_refused(cache, fingerprint, quantized=quantized)
            cache.sweep(fingerprint, quantized=quantized)
            await make_graph(loaded, config, cache)
            return await asyncio.to_thread(verified_first, loaded, config, cache)
    except OSError as error:
        raise GraphError(
            f"graphs cannot be kept in {config.graphs} ({error}); let CAPSULE_GRAPH_DIR name a "
            "folder that can be written to"
        ) from error


def inode(path: Path | None) -> int | None:
    """What tells a file from another that takes its place; None where there is none."""
    try:
        return None if path is None else path.stat().st_ino
    except OSError:
        return None


def check_not_refused(cache: GraphCache, fingerprint: str, *, quantized: bool) -> None:
    """Stop where a graph was refused when it was made.

    Raises:
        GraphError: it was; the message says why, and how to have it tried again.
    """
    reason = cache.refusal(fingerprint, quantized=quantized)
    if reason is not None:
        path = cache.refusal_file(fingerprint, quantized=quantized)
        raise GraphError(
            f"{reason}, as was found when it was exported; remove {path} to have it exported again"
        )


async def usable(
    loaded: LoadedBackbone, config: ExecutorConfig, path: Path | None
) -> OnnxRuntimeExecutor | None:
    """What runs a kept graph; None where there is none, or a wrong one, which is logged."""
    if path is None:
        return None
    try:
        return await asyncio.to_thread(verified, loaded, config, path)
    except GraphError as error:
        logger.warning("graph_discarded", path=str(path), reason=str(error))
        return None


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
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,
            # An interrupt from the terminal is the server's affair.
            start_new_session=True,
        )
        try:
            _, told = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise GraphError(f"its graph could not be exported ({last_line(told)})")
    seconds = round(time.perf_counter() - started, 1)
    logger.info("graph_export_finished", backbone=loaded.info.id, seconds=seconds)


def verified_first(
    loaded: LoadedBackbone, config: ExecutorConfig, cache: GraphCache
) -> OnnxRuntimeExecutor:
    """:func:`verified` of a graph that has just been made, and is refused for good if it is wrong.

    Raises:
        WrongGraphError: it gives other answers.
        GraphError: it cannot be loaded, which may be for want of anything and is not kept in mind.
    """
    fingerprint, quantized = loaded.info.fingerprint, config.quantization == "int8"
    path = cache.find(fingerprint, quantized=quantized)
    if path is None:
        raise GraphError(f"its graph was removed from {cache.folder} as soon as it was exported")
    try:
        return verified(loaded, config, path)
    except WrongGraphError as error:
        # Where it cannot be written down, the next start finds out for itself.
        with suppress(OSError):
            cache.refuse(fingerprint, str(error), quantized=quantized)
        raise


def verified(loaded: LoadedBackbone, config: ExecutorConfig, path: Path) -> OnnxRuntimeExecutor:
    """Load a graph and compare it with torch.

    Raises:
        WrongGraphError: it gives other answers.
        GraphError: it cannot be loaded.
    """
    quantized = config.quantization == "int8"
    tolerance = QUANTIZED_FEATURE_TOLERANCE if quantized else FEATURE_TOLERANCE
    try:
        executor = OnnxRuntimeExecutor(
            loaded.backbone, path, config.threads or available_cores(), quantized=quantized
        )
        found = difference(loaded.backbone, executor)
    except Exception as error:
        raise GraphError(f"its graph cannot be run ({error})") from error
    if not found <= tolerance:
        raise WrongGraphError(
            f"its graph differs from torch by {found:.2g}, more than {tolerance:g}"
        )
    logger.info("graph_verified", backbone=loaded.info.id, difference=float(f"{found:.2g}"))
    return executor


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def last_line(told: bytes) -> str:
    """What a process that failed said last, which is why."""
    return told.decode(errors="replace").strip().rpartition("\n")[2][-LAST_WORDS:]


def first_line(told: str) -> str:
    """What an error says before it goes into details."""
    return told.strip().partition("\n")[0][:LAST_WORDS]
