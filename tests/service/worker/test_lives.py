"""Workers as processes of their own, killed and stopped."""

import json
import os
import random
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from capsules.backbones.base import LoadedBackbone
from capsules.executors.torch import TorchExecutor
from service.jobs.ledger import Ledger
from service.jobs.records import Claim
from service.jobs.sql import SqlLedger
from service.store import open_store
from service.store.base import Store
from service.store.sql import SqlStore
from service.worker.training import Training
from tests.service.worker.samples import at_once, capsule_of, learned, measured, submitted, told
from tests.support.commands import COMMAND, PATIENCE_S, environment
from tests.support.datasets import separable

pytestmark = pytest.mark.timeout(PATIENCE_S)

# Some tenths of a second an epoch, on an idle machine.
LONG: dict[str, Any] = {
    "train": separable(160, seed=1),
    "validation": separable(40, seed=2),
    "epochs": 6,
    "patience": 6,
    "batch_size": 4,
    "learning_rate": 0.002,
}


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


class Deployment:
    """A data folder, and workers on it."""

    def __init__(self, folder: Path, backbone: Path) -> None:
        self.folder = folder
        self.backbone = backbone
        self.store: Store = open_store(folder / "data")
        assert isinstance(self.store, SqlStore)
        self.ledger: Ledger = SqlLedger(self.store)
        self.workers: list[subprocess.Popen[str]] = []

    def start(self, *flags: str, **variables: str) -> subprocess.Popen[str]:
        log = (self.folder / f"worker-{len(self.workers)}.log").open("w")
        with log:
            worker = subprocess.Popen(
                [
                    *(*COMMAND, "worker", "--data-dir", "data", "--backbone", str(self.backbone)),
                    *("--train-threads", "1", "--train-nice", "0", "--device", "cpu", *flags),
                ],
                cwd=self.folder,
                env={**environment(), **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.workers.append(worker)
        return worker

    def log(self, number: int = -1) -> str:
        return (self.folder / f"worker-{number % len(self.workers)}.log").read_text()

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.store.close()


@pytest.fixture
def deployment(tmp_path: Path, backbone_folder: Path) -> Iterator[Deployment]:
    with closing(Deployment(tmp_path, backbone_folder)) as made:
        yield made


Outcome = tuple[list[dict[str, Any]], dict[str, bytes]]
"""What the epochs came to, and the capsule's tensors."""


def outcome(ledger: Ledger, store: Store, job: str) -> Outcome:
    return measured(ledger, job), learned(capsule_of(store, ledger.get(job)))


def undisturbed(deployment: Deployment, tiny: LoadedBackbone, **given: Any) -> Outcome:
    """What the same job comes to where nobody disturbs it: here, at once, by itself."""
    with closing(open_store(deployment.folder / "undisturbed")) as store:
        assert isinstance(store, SqlStore)
        ledger = SqlLedger(store)
        job = submitted(ledger, **given)
        slot = ledger.take_slot("here", "host", 1, ())
        claim = Claim(job.id, job.run, "here")
        started = ledger.start(claim, slot.name)
        executor = TorchExecutor(tiny.backbone)
        Training(ledger, store, tiny, executor, claim, started).train(at_once)
        return outcome(ledger, store, job.id)


def assert_same(deployment: Deployment, tiny: LoadedBackbone, job: str, **given: Any) -> None:
    """A job that was disturbed came to what it comes to when it is not."""
    ledger = deployment.ledger
    assert outcome(ledger, deployment.store, job) == undisturbed(deployment, tiny, **given)
    events, _ = ledger.events(job, limit=1000)
    assert [event.number for event in events] == list(range(1, len(events) + 1))


def epochs(deployment: Deployment, job: str) -> int:
    return len(deployment.ledger.get(job).epochs)


def wait_for_epochs(deployment: Deployment, job: str, wanted: int) -> None:
    wait_for(lambda: epochs(deployment, job) >= wanted)


def test_killed_and_started_again_it_comes_to_the_same(
    deployment: Deployment, tiny: LoadedBackbone
) -> None:
    job = submitted(deployment.ledger, **LONG)
    first = deployment.start(OMP_DISPLAY_ENV="VERBOSE")
    wait_for(lambda: epochs(deployment, job.id) >= 2)
    first.kill()
    first.wait()
    # Its slot is free at once, since its process is dead, and so is what it was doing.
    second = deployment.start()
    wait_for(lambda: deployment.ledger.get(job.id).ended)
    second.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert second.wait(PATIENCE_S) == 0
    assert time.monotonic() - began < 10

    done = deployment.ledger.get(job.id)
    assert (done.status, done.run, done.crashes) == ("succeeded", 1, 1)
    assert [slot.name for slot in deployment.ledger.slots()] == ["worker-1"]
    assert deployment.ledger.slots()[0].released
    lost = [message for _, message in told(deployment.ledger, job.id) if "was lost" in message]
    assert len(lost) == 1
    assert_same(deployment, tiny, job.id, **LONG)

    # Torch heard in time that its idle threads are to sleep.
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in deployment.log(0)
    assert "GOMP_SPINCOUNT = '0'" in deployment.log(0)
    lines = [json.loads(line) for line in deployment.log(1).splitlines()]
    assert [line["event"] for line in lines] == [
        "worker_ready",
        "job_started",
        "audit",
        "job_succeeded",
        "worker_stopped",
    ]


@pytest.mark.slow
def test_killed_twice_at_random_it_comes_to_the_same(
    deployment: Deployment, tiny: LoadedBackbone
) -> None:
    given = {**LONG, "variant": "extraction", "test": separable(20, seed=3)}
    job = submitted(deployment.ledger, **given)
    moment = random.Random()
    for wanted in (1, 4):
        worker = deployment.start()
        wait_for_epochs(deployment, job.id, wanted)
        time.sleep(moment.uniform(0.0, 0.5))
        worker.kill()
        worker.wait()
    deployment.start()
    wait_for(lambda: deployment.ledger.get(job.id).ended)
    done = deployment.ledger.get(job.id)
    assert (done.status, done.run) == ("succeeded", 1)
    assert done.crashes <= 2
    assert_same(deployment, tiny, job.id, **given)


@pytest.mark.slow
def test_the_third_crash_is_the_last(deployment: Deployment) -> None:
    job = submitted(deployment.ledger, **{**LONG, "epochs": 500, "patience": 500})
    for crash in range(1, 4):
        worker = deployment.start()
        wait_for_epochs(deployment, job.id, crash)
        worker.kill()
        worker.wait()
    deployment.start()
    wait_for(lambda: deployment.ledger.get(job.id).ended)
    failed = deployment.ledger.get(job.id)
    assert (failed.status, failed.crashes) == ("failed", 3)
    assert failed.error is not None
    assert (failed.error.code, failed.error.param) == ("worker_crashed", "batch_size")
    assert f"after epoch {len(failed.epochs)}" in failed.error.message
    # Resumed, it goes on, and has three lives again.
    deployment.ledger.resume(job.id)
    wait_for(lambda: epochs(deployment, job.id) > len(failed.epochs))
    resumed = deployment.ledger.get(job.id)
    assert (resumed.status, resumed.run, resumed.crashes) == ("running", 2, 0)


@pytest.mark.slow
def test_stopped_it_gives_its_job_back_and_cancelled_it_drops_it(deployment: Deployment) -> None:
    job = submitted(deployment.ledger, **{**LONG, "epochs": 500, "patience": 500})
    worker = deployment.start()
    wait_for(lambda: epochs(deployment, job.id) >= 1)
    worker.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert worker.wait(PATIENCE_S) == 0
    assert time.monotonic() - began < 10
    stopped = deployment.ledger.get(job.id)
    assert (stopped.status, stopped.run, stopped.crashes) == ("queued", 2, 0)

    other = submitted(deployment.ledger, **{**LONG, "epochs": 1, "task": "other"})
    deployment.start()
    wait_for(lambda: epochs(deployment, job.id) > len(stopped.epochs))
    deployment.ledger.cancel(job.id)
    # The worker has its hands free soon.
    wait_for(lambda: deployment.ledger.get(other.id).ended)
    assert deployment.ledger.get(job.id).status == "cancelled"
    assert deployment.ledger.get(other.id).status == "succeeded"
    assert "job_dropped" in deployment.log()


@pytest.mark.slow
def test_too_little_memory_fails_the_job_and_not_the_worker(deployment: Deployment) -> None:
    large = submitted(
        deployment.ledger,
        train=separable(4096, seed=1, longest=60),
        task="large",
        batch_size=4096,
        max_length=65,
    )
    small = submitted(deployment.ledger, task="small")
    worker = deployment.start("--train-memory", "900MiB")
    wait_for(lambda: deployment.ledger.get(small.id).ended)
    failed = deployment.ledger.get(large.id)
    assert (failed.status, failed.crashes) == ("failed", 0)
    assert failed.error is not None
    assert (failed.error.code, failed.error.param) == ("out_of_memory", "batch_size")
    assert re.search(r"batch_size \d+ would fit", failed.error.message)
    assert deployment.ledger.get(small.id).status == "succeeded"
    # The same process, with none of the memory that the large one left behind.
    events = [json.loads(line)["event"] for line in deployment.log().splitlines()]
    assert events.count("worker_ready") == 2
    assert events.index("worker_begins_anew") < events.index("job_succeeded")
    assert [slot.pid for slot in deployment.ledger.slots()] == [worker.pid]
    assert os.getpriority(os.PRIO_PROCESS, worker.pid) == os.getpriority(os.PRIO_PROCESS, 0)


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    ended = subprocess.run(
        [*COMMAND, "worker", "--data-dir", "data"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 1
    (line,) = [json.loads(one) for one in ended.stdout.splitlines()]
    assert (line["event"], line["code"]) == ("start_failed", "store_unavailable")


@pytest.mark.slow
def test_a_server_keeps_a_worker(tmp_path: Path, backbone_folder: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as file:
        server = subprocess.Popen(
            [
                *(*COMMAND, "serve", "--port", "0", "--data-dir", "data", "--no-load-zoo"),
                *("--backbone", str(backbone_folder), "--threads", "1", "--train-threads", "1"),
            ],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )

    def logged(event: str) -> int:
        return log.read_text().count(f'"event":"{event}"')

    try:
        wait_for(lambda: logged("worker_ready") == 1)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        names = [line["event"] for line in lines]
        assert names.index("ready") < names.index("worker_ready")
        with closing(open_store(tmp_path / "data")) as store:
            assert isinstance(store, SqlStore)
            ledger = SqlLedger(store)
            (slot,) = ledger.slots()
            os.kill(slot.pid, signal.SIGKILL)
            wait_for(lambda: logged("worker_ready") == 2)
            job = submitted(ledger, epochs=1)
            wait_for(lambda: ledger.get(job.id).ended)
            assert ledger.get(job.id).status == "succeeded"
            (slot,) = ledger.slots()
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) == 0
        assert logged("worker_stopped") == 1
        assert not Path(f"/proc/{slot.pid}").exists()
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A database of its own on the server that `TEST_POSTGRES_URL` names, such as
    `postgresql://user:password@127.0.0.1:5432`; the workers make it themselves.
    """
    server = make_url(os.environ["TEST_POSTGRES_URL"])
    name = f"capsule_test_{uuid.uuid4().hex[:12]}"
    yield server.set(database=name).render_as_string(hide_password=False)
    engine = create_engine(
        server.set(drivername="postgresql+psycopg", database="postgres"),
        isolation_level="AUTOCOMMIT",
    )
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
    engine.dispose()


@pytest.mark.postgres
def test_steps_can_be_kept_in_postgresql(
    deployment: Deployment, tiny: LoadedBackbone, postgres_url: str
) -> None:
    job = submitted(deployment.ledger, **LONG)
    first = deployment.start("--train-database", postgres_url)
    wait_for(lambda: epochs(deployment, job.id) >= 2)
    first.kill()
    first.wait()
    second = deployment.start("--train-database", postgres_url)
    wait_for(lambda: deployment.ledger.get(job.id).ended)
    second.send_signal(signal.SIGTERM)
    assert second.wait(PATIENCE_S) == 0
    done = deployment.ledger.get(job.id)
    assert (done.status, done.run, done.crashes) == ("succeeded", 1, 1)
    assert_same(deployment, tiny, job.id, **LONG)
    assert not (deployment.folder / "data" / "workflows.sqlite").exists()
    assert {json.loads(line)["level"] for line in deployment.log(1).splitlines()} == {"info"}
