"""Warms a server up behind its back, and takes it down again."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing

import structlog

from capsules import zoo
from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.errors import CapsuleError
from capsules.executors.base import Executor
from capsules.executors.onnx.runtime import OnnxRuntimeExecutor
from service.desk.desk import Desk
from service.desk.housekeeping import Housekeeping, keeping
from service.desk.ports import Rehearsal as RehearsalPort, Shelf
from service.engine.config import EngineConfig
from service.engine.engine import Engine
from service.engine.executors import ExecutorConfig, open_executor
from service.engine.rehearsal import Rehearsal
from service.errors import ServiceError
from service.jobs.sql import open_ledger
from service.metrics import Metrics
from service.registry.follower import following
from service.registry.registry import Registry
from service.settings import Settings
from service.state import BackboneFacts, Live, Warm
from service.store import Store, open_store
from service.store.errors import StoreError

Assemble = Callable[[Settings, Metrics], AbstractAsyncContextManager[Warm]]
"""Builds what requests are served with, and tears it down at the end."""

logger = structlog.stdlib.get_logger(__name__)


@asynccontextmanager
async def assemble(
    settings: Settings,
    metrics: Metrics,
    *,
    executor_for: Callable[[LoadedBackbone, ExecutorConfig], Awaitable[Executor]] = open_executor,
) -> AsyncIterator[Warm]:
    """The real thing: store, backbone, engine and registry, in this order; blocking parts in threads.

    Args:
        settings: of the server.
        metrics: observe the engine and the registry.
        executor_for: makes what runs the backbone.

    Raises:
        CapsuleError: the backbone cannot be had or run.
        StoreError: the database cannot be opened.
        ServiceError: the stored capsules cannot be loaded.
    """
    store = await asyncio.to_thread(open_store, settings.data_dir)
    try:
        loaded = await asyncio.to_thread(
            load, settings.backbone, device=settings.device, dtype=settings.dtype
        )
        executor = await executor_for(loaded, executor_config(settings))
        engine = Engine(loaded, executor, engine_config(settings, executor), metrics)
        try:
            await engine.start()
            with closing(
                Registry(
                    store,
                    engine,
                    loaded.info,
                    observer=metrics,
                    tolerance=executor.tolerance,
                )
            ) as registry:
                await registry.load(lambda count: logger.info("capsules_read", count=count))
                if settings.load_zoo:
                    await registry.load_zoo(zoo.artefacts())
                metrics.watch(lambda: engine.queue_depth, engine.bank.stats, registry.knows)
                follower = registry.follower()
                metrics.watch_follower(follower.lag)
                with closing(open_desk(store, Rehearsal(loaded), registry, settings)) as desk:
                    async with following(follower), keeping(Housekeeping(desk, metrics)):
                        yield Warm(
                            engine=engine,
                            registry=registry,
                            backbone=facts(loaded, executor),
                            jobs=desk,
                        )
        finally:
            await engine.stop()
    finally:
        await asyncio.to_thread(store.close)


def executor_config(settings: Settings) -> ExecutorConfig:
    """The executor's part of the settings."""
    return ExecutorConfig(
        backbone=settings.backbone,
        graphs=settings.graph_dir or settings.data_dir / "graphs",
        choice=settings.executor,
        quantization=settings.quantization,
        compile=settings.compile,
        threads=settings.threads,
    )


def engine_config(settings: Settings, executor: Executor) -> EngineConfig:
    """The engine's part of the settings."""
    return EngineConfig(
        # What is left to torch beside an executor with threads of its own is too small for many.
        threads=1 if isinstance(executor, OnnxRuntimeExecutor) else settings.threads,
        tokenise_threads=settings.tokenise_threads,
        queue_rows=settings.queue_rows,
        caller_weights=settings.caller_weights,
        max_batch_rows=settings.max_batch_rows,
        max_batch_tokens=settings.max_batch_tokens,
        bank_slots=settings.bank_slots,
        grace_s=settings.shutdown_grace_s,
    )


def open_desk(store: Store, rehearsal: RehearsalPort, shelf: Shelf, settings: Settings) -> Desk:
    """Where training jobs are taken in; the caller closes it before the store."""
    return Desk(
        open_ledger(store),
        rehearsal,
        shelf,
        folder=settings.data_dir,
        max_bytes=settings.max_dataset_bytes,
        max_rows=settings.max_dataset_rows,
    )


def facts(loaded: LoadedBackbone, executor: Executor) -> BackboneFacts:
    """What clients are told of the backbone."""
    info = loaded.info
    return BackboneFacts(
        id=info.id,
        family=info.family,
        architecture=info.architecture,
        hidden_size=info.hidden_size,
        num_layers=info.num_layers,
        parameters=info.parameters,
        vocab_size=info.vocab_size,
        max_tokens=info.max_tokens,
        fingerprint=info.fingerprint,
        device=str(executor.device),
        dtype=str(loaded.backbone.dtype).removeprefix("torch."),
        executor=executor.name,
        path=str(info.path),
    )


async def serve_until(
    stop: asyncio.Event,
    live: Live,
    build: Assemble,
    on_fatal: Callable[[], None],
    on_warm: Callable[[], None],
) -> None:
    """Warm up, serve until told to stop, and take everything down.

    Args:
        stop: set it to end the server.
        live: is opened once all is there.
        build: builds it.
        on_fatal: is called where that fails, after the reason has been logged.
        on_warm: is called where it does not, just before the server opens.
    """
    started = time.perf_counter()
    try:
        async with build(live.settings, live.metrics) as warm:
            on_warm()
            live.open(warm)
            logger.info(
                "ready",
                backbone=warm.backbone.id,
                device=warm.backbone.device,
                executor=warm.backbone.executor,
                capsules=warm.registry.served,
                seconds=round(time.perf_counter() - started, 3),
            )
            await stop.wait()
    except CapsuleError as error:
        logger.critical("start_failed", code=error.code, reason=error.message)
        on_fatal()
    except ServiceError as error:
        logger.critical("start_failed", code=error.code, reason=error.detail)
        on_fatal()
    except StoreError as error:
        logger.critical("start_failed", code="store_unavailable", reason=str(error))
        on_fatal()
    except Exception:
        logger.exception("start_failed", code="internal_error")
        on_fatal()


@asynccontextmanager
async def running(
    live: Live,
    build: Assemble,
    on_fatal: Callable[[], None],
    on_warm: Callable[[], None] = lambda: None,
) -> AsyncIterator[None]:
    """Keep a server warming up and then serving in the background; the lifespan of the app."""
    live.phase = "warming"
    stop = asyncio.Event()
    task = asyncio.create_task(serve_until(stop, live, build, on_fatal, on_warm))
    try:
        yield
    finally:
        live.drain()
        stop.set()
        if live.warm is None:
            task.cancel()
        await asyncio.wait([task])
        live.warm = None
