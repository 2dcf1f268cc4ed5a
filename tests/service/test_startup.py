import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from capsules import zoo
from capsules.artefact.file import digest
from capsules.backbones.base import LoadedBackbone
from capsules.errors import BackboneError, BackboneFault
from capsules.executors.base import TOLERANCE, Executor
from capsules.executors.torch import TorchExecutor
from service.engine.batcher import Limits
from service.engine.config import PROOF_WEIGHT
from service.engine.executors import ExecutorConfig, open_executor
from service.engine.queue import RowQueue
from service.engine.records import PROOF_CALLER
from service.errors import Unavailable
from service.metrics import Metrics
from service.settings import Settings
from service.startup import assemble, engine_config, executor_config, running
from service.state import Live, Warm
from service.store import open_store
from service.store.errors import StoreUnavailable
from tests.support.backbones import save_tiny_bert
from tests.support.commands import GRAPHS
from tests.support.edge import EdgeEngine, settings_for, with_engine
from tests.support.executors import RecordingExecutor
from tests.support.requests import queued_rows


@pytest.fixture
def live(tmp_path: Path) -> Live:
    return Live(settings_for(tmp_path), Metrics(tasks=1))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a phase has no event
            await asyncio.sleep(0.005)


class Failing(AbstractAsyncContextManager[Warm]):
    """Fails where it should have been built."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def __aenter__(self) -> Warm:
        raise self.error

    async def __aexit__(self, *exception: object) -> None:
        raise AssertionError("it was never entered")


def code_of(live: Live) -> str | None:
    """Why nothing is served, or None."""
    try:
        live.require_warm()
    except Unavailable as error:
        return error.code
    return None


def never() -> None:
    raise AssertionError("nothing was fatal")


async def test_it_opens_when_all_is_there_and_closes_in_the_end(live: Live) -> None:
    with capture_logs() as logs:
        async with running(live, with_engine(EdgeEngine()), never):
            assert code_of(live) == "warming"
            await until(lambda: code_of(live) is None)
            assert live.warm is not None
        assert code_of(live) == "draining"
    assert [line["event"] for line in logs if line["event"] == "ready"] == ["ready"]


async def test_it_settles_before_it_opens(live: Live) -> None:
    phases: list[str] = []
    async with running(live, with_engine(EdgeEngine()), never, lambda: phases.append(live.phase)):
        await until(lambda: code_of(live) is None)
    assert phases == ["warming"]


async def test_it_can_be_stopped_while_it_warms_up(live: Live) -> None:
    torn_down = asyncio.Event()

    @asynccontextmanager
    async def build(settings: Settings, metrics: Metrics) -> AsyncIterator[Warm]:
        try:
            await asyncio.Event().wait()
        finally:
            torn_down.set()
        yield  # type: ignore[misc]

    async with asyncio.timeout(5):
        async with running(live, build, never):
            await asyncio.sleep(0)
    assert torn_down.is_set()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BackboneError("No backbone.", code=BackboneFault.NOT_FOUND), "backbone_not_found"),
        (Unavailable("The store is gone.", code="store_unavailable"), "store_unavailable"),
        (StoreUnavailable("disk full"), "store_unavailable"),
        (RuntimeError("nobody foresaw this"), "internal_error"),
    ],
)
async def test_a_failure_is_one_line_and_fatal(live: Live, error: Exception, code: str) -> None:
    fatal = asyncio.Event()
    with capture_logs() as logs:
        async with running(live, lambda settings, metrics: Failing(error), fatal.set):
            async with asyncio.timeout(5):
                await fatal.wait()
            assert code_of(live) == "warming"
    (line,) = logs
    assert (line["event"], line["code"]) == ("start_failed", code)
    assert line["log_level"] in ("critical", "error")


def test_the_engine_gets_its_settings(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, threads=3, queue_rows=2000, shutdown_grace_s=1.5)
    config = engine_config(settings, RecordingExecutor(8))
    assert (config.threads, config.queue_rows, config.grace_s) == (3, 2000, 1.5)
    assert config.max_batch_tokens is None


async def test_a_caller_with_more_weight_gets_its_share(tmp_path: Path) -> None:
    heavy = "sha256:bffde20413347b7a00e1363de3f97ca69e419dc0aea55f4a4a75018fab3a0e8e"
    settings = settings_for(tmp_path, caller_weights={heavy: 3, "10.0.0.2": 0.5})
    callers = Live(settings, Metrics(tasks=1)).callers
    keys = {
        "heavy": callers.key({"headers": [(b"authorization", b"Bearer secret")]}),
        "usual": callers.key({"headers": [], "client": ("10.0.0.3", 1)}),
        "light": callers.key({"headers": [], "client": ("10.0.0.2", 1)}),
    }
    weights = engine_config(settings, RecordingExecutor(8)).weights
    assert weights == {PROOF_CALLER: PROOF_WEIGHT, heavy: 3.0, "10.0.0.2": 0.5}

    queue = RowQueue(1000, Limits(max_rows=9, max_tokens=1000), weights=weights)
    for key in keys.values():
        queue.reserve(100, key)
        queue.put(queued_rows([9] * 100, caller=key))
    first: Counter[str] = Counter()
    for _ in range(10):
        picked = queue.take()
        assert picked is not None
        first.update(row.caller for row in picked.batch)
    assert first == {keys["heavy"]: 60, keys["usual"]: 20, keys["light"]: 10}


def test_torch_keeps_out_of_the_way_of_an_executor_with_threads_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Graph(RecordingExecutor):
        pass

    monkeypatch.setattr("service.startup.OnnxRuntimeExecutor", Graph)
    settings = settings_for(tmp_path, threads=3)
    assert engine_config(settings, Graph(8)).threads == 1
    assert engine_config(settings, RecordingExecutor(8)).threads == 3


def test_the_executor_gets_its_settings(tmp_path: Path) -> None:
    settings = settings_for(
        tmp_path, executor="onnxruntime", quantization="int8", threads=3, backbone="here"
    )
    assert executor_config(settings) == ExecutorConfig(
        backbone="here",
        graphs=tmp_path / "graphs",
        choice="onnxruntime",
        quantization="int8",
        threads=3,
    )
    settings = settings_for(tmp_path, graph_dir=tmp_path / "other", compile=True)
    config = executor_config(settings)
    assert (config.graphs, config.compile) == (tmp_path / "other", True)


async def test_capsules_are_proven_as_exactly_as_the_executor_computes(tmp_path: Path) -> None:
    class Rough(TorchExecutor):
        tolerance = 0.25

    async def rough(loaded: LoadedBackbone, config: ExecutorConfig) -> Executor:
        return Rough(loaded.backbone)

    backbone = save_tiny_bert(tmp_path / "backbone")
    settings = settings_for(tmp_path / "data", backbone=str(backbone), threads=1, device="cpu")
    for executor_for, tolerance in ((rough, 0.25), (open_executor, TOLERANCE)):
        async with assemble(settings, Metrics(tasks=1), executor_for=executor_for) as warm:
            assert warm.registry.uploads.tolerance == tolerance


@pytest.mark.slow
@pytest.mark.timeout(600)  # the first run on a machine exports the graph
async def test_the_shipped_capsules_prove_themselves_on_integers(tmp_path: Path) -> None:
    settings = settings_for(
        tmp_path,
        executor="auto",
        quantization="int8",
        graph_dir=GRAPHS,
        device="cpu",
        load_zoo=True,
    )
    async with assemble(settings, Metrics(tasks=1)) as warm:
        assert warm.backbone.executor == "onnxruntime-int8"
        assert warm.registry.served == len(list(zoo.artefacts()))


async def test_the_real_thing_is_assembled(tmp_path: Path) -> None:
    backbone = save_tiny_bert(tmp_path / "backbone")
    settings = settings_for(tmp_path / "data", backbone=str(backbone), threads=1, device="cpu")
    metrics = Metrics(tasks=1)
    async with assemble(settings, metrics) as warm:
        assert warm.engine.healthy
        assert warm.registry.served == 0
        facts = warm.backbone
        assert (facts.family, facts.architecture) == ("encoder-only", "bert")
        assert (facts.device, facts.dtype, facts.executor) == ("cpu", "float32", "torch")
        assert facts.path == str(backbone)
        assert metrics.registry.get_sample_value("capsule_queue_depth") == 0
        tier = {"tier": "device"}
        assert metrics.registry.get_sample_value("capsule_capsules_loaded", tier) == 0
        assert not metrics.known("trec")
        assert sum((await warm.jobs.ask(warm.jobs.ledger.counts)).values()) == 0
        assert warm.jobs.rehearsal.max_length("addition", 1) == 65
        with closing(open_store(tmp_path / "data")) as other:
            other.add_version("trec", digest(b"x"), {}, b"x", "upload")
        followed = metrics.registry.get_sample_value
        await until(lambda: followed("capsule_tasks_followed_total") == 1)
        assert metrics.known("trec")
        assert (metrics.registry.get_sample_value("capsule_follower_lag_seconds") or 0.0) < 20
    assert not warm.engine.healthy


async def test_shipped_capsules_of_another_backbone_do_not_stop_the_start(tmp_path: Path) -> None:
    backbone = save_tiny_bert(tmp_path / "backbone")
    settings = settings_for(
        tmp_path / "data", backbone=str(backbone), threads=1, device="cpu", load_zoo=True
    )
    async with assemble(settings, Metrics(tasks=1)) as warm:
        assert warm.registry.served == 0


async def test_a_backbone_that_is_not_there_is_told(tmp_path: Path) -> None:
    settings = settings_for(tmp_path / "data", backbone=str(tmp_path / "nowhere"))
    with pytest.raises(BackboneError):
        async with assemble(settings, Metrics(tasks=1)):
            pass


async def test_a_data_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnavailable):
        async with assemble(settings_for(tmp_path / "file"), Metrics(tasks=1)):
            pass
