"""Every Prometheus metric of the server, each declared once, in a registry of the app's own."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.ranking import Ranking

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
OTHER_TASKS = "_other"
"""The label that the less busy tasks share; no task can have it as its name."""

RANK_S = 60.0
"""How often labels may change hands, each time after the metrics have been read."""

UNREAD_S = 600.0
"""After how long without a reader that happens nevertheless, so that deleted tasks are forgotten."""

REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
STAGE_SECONDS = (0.0001, 0.00025, 0.0005, *REQUEST_SECONDS)
COUNTS = tuple(2**exponent for exponent in range(11))
TOKENS = tuple(2**exponent for exponent in range(4, 17))
RATIOS = (1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 3, 4, 8)


class Batch(Protocol):
    """What is measured of a batch; see `service.engine.observer.BatchReport`."""

    @property
    def rows(self) -> int:
        """Its texts."""
        ...

    @property
    def tokens(self) -> int:
        """Its real tokens."""
        ...

    @property
    def padded_tokens(self) -> int:
        """Its tokens, padding included."""
        ...

    @property
    def tasks(self) -> int:
        """Its distinct tasks."""
        ...

    @property
    def forward_seconds(self) -> float:
        """How long it took."""
        ...

    @property
    def queue_seconds(self) -> Sequence[float]:
        """How long each row waited."""
        ...

    @property
    def prepare_seconds(self) -> float:
        """How long it took to get ready."""
        ...

    @property
    def ahead(self) -> bool:
        """Whether the model ran another batch meanwhile."""
        ...


class Bank(Protocol):
    """What is measured of the bank of capsules; see `service.engine.bank.BankStats`."""

    @property
    def resident(self) -> int:
        """Capsules on the device."""
        ...

    @property
    def host(self) -> int:
        """Capsules in host memory."""
        ...

    @property
    def bytes(self) -> int:
        """Taken on the device."""
        ...

    @property
    def host_bytes(self) -> int:
        """Taken in host memory."""
        ...

    @property
    def page_ins(self) -> int:
        """Capsules brought to the device, ever."""
        ...

    @property
    def evictions(self) -> int:
        """Capsules that made room, ever."""
        ...


class BankCollector(Collector):
    """Reads the bank once whenever the metrics are read, so that its figures fit each other."""

    def __init__(self) -> None:
        self.read: Callable[[], Bank] | None = None

    def collect(self) -> Iterable[Metric]:
        """The bank's metrics; none before there is a bank."""
        if self.read is None:
            return
        bank = self.read()
        loaded = GaugeMetricFamily(
            "capsule_capsules_loaded",
            "Capsules in memory, by where their tensors are.",
            labels=("tier",),
        )
        taken = GaugeMetricFamily(
            "capsule_bank_bytes",
            "Memory that capsules' tensors take, idle places included, by where they are.",
            labels=("tier",),
        )
        for tier, count, nbytes in (
            ("device", bank.resident, bank.bytes),
            ("host", bank.host, bank.host_bytes),
        ):
            loaded.add_metric((tier,), count)
            taken.add_metric((tier,), nbytes)
        yield loaded
        yield taken
        yield CounterMetricFamily(
            "capsule_bank_page_ins",
            "Capsules that were brought from host memory to the device for a batch.",
            value=bank.page_ins,
        )
        yield CounterMetricFamily(
            "capsule_bank_evictions",
            "Capsules that were moved to host memory to make room for others.",
            value=bank.evictions,
        )


class Metrics:
    """The metrics; observes the engine and the registry, from any thread.

    Args:
        tasks: how many tasks have a label of their own: the busiest.
        clock: seconds that only ever grow.
    """

    def __init__(self, tasks: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self.clock = clock
        self.ranking = Ranking(tasks)
        self.ranked = clock()
        self.known: Callable[[str], bool] = lambda task: True
        self.lock = Lock()
        self.request_series: dict[tuple[str, int], Counter] = {}
        self.route_series: dict[str, Histogram] = {}

        self.connections = self.gauge("capsule_connections", "Connections of clients.")
        self.cut = self.counter(
            "capsule_connections_cut",
            "Connections that were cut off at once, as there were far too many.",
        )
        self.requests = self.counter(
            "capsule_requests",
            "Requests by task and HTTP status: once for each known task of a request, or once "
            "under an empty task where there is none. 499: the client went away.",
            "task",
            "code",
        )
        self.request_seconds = self.histogram(
            "capsule_request_duration_seconds",
            "From a request's arrival to the end of its reply, by route.",
            REQUEST_SECONDS,
            "route",
        )
        self.refused = self.counter(
            "capsule_rejected",
            "Requests, and rows of requests that were otherwise answered, that got an error, by "
            "the error's code.",
            "reason",
        )
        self.truncated = self.counter("capsule_truncated", "Rows whose text was cut to fit.")

        self.tokenise_seconds = self.histogram(
            "capsule_tokenise_seconds",
            "Rendering and tokenising the rows of one request.",
            STAGE_SECONDS,
        )
        self.queue_seconds = self.histogram(
            "capsule_queue_seconds", "One row's wait for the model.", STAGE_SECONDS
        )
        self.prepare_seconds = self.histogram(
            "capsule_prepare_seconds",
            "Getting one batch ready: padding, gathering capsules, what the executor needs; "
            "`ahead`: while the model ran another batch, or else `idle`.",
            STAGE_SECONDS,
            "model",
        )
        self.forward_seconds = self.histogram(
            "capsule_forward_seconds", "One batch on the model.", STAGE_SECONDS
        )
        self.batch_size = self.histogram("capsule_batch_size", "Rows of a batch.", COUNTS)
        self.batch_tokens = self.histogram(
            "capsule_batch_tokens", "Tokens of a batch, padding left out.", TOKENS
        )
        self.batch_tasks = self.histogram(
            "capsule_batch_tasks", "Distinct tasks of a batch.", COUNTS
        )
        self.padding_ratio = self.histogram(
            "capsule_batch_padding_ratio",
            "Tokens computed of a batch over real ones; 1 is no padding, or an executor without.",
            RATIOS,
        )
        self.failed = self.counter(
            "capsule_batch_failed_rows", "Rows of batches that could not be prepared or run."
        )
        self.unwanted = self.counter(
            "capsule_batch_dropped_rows",
            "Rows of batches that nobody waited for any more when the model came to them.",
        )
        self.queue_depth = self.gauge("capsule_queue_depth", "Rows that wait for the model.")
        self.dropped = self.counter(
            "capsule_cancelled", "Rows that had no answer yet when their client went away."
        )
        self.late = self.counter(
            "capsule_expired", "Rows that had no answer yet when their time was up."
        )
        self.shed = self.counter(
            "capsule_shed_rows",
            "Rows that the engine turned away, by the error's code; `caller_queue_full`: for being "
            "more than their caller's share of the queue.",
            "reason",
        )

        self.bank = BankCollector()
        self.registry.register(self.bank)
        self.servable = self.gauge(
            "capsule_versions_served", "Capsule versions that can be classified with."
        )
        self.load_seconds = self.histogram(
            "capsule_load_seconds",
            "Loading one capsule file: its checks, golden replay and storage.",
            REQUEST_SECONDS,
        )
        self.start_load_seconds = self.gauge(
            "capsule_start_load_seconds", "Loading every stored capsule at start."
        )
        self.followed = self.counter(
            "capsule_tasks_followed",
            "Tasks that were brought into step with what another process wrote: a training worker "
            "or another server.",
        )
        self.follower_lag = self.gauge(
            "capsule_follower_lag_seconds",
            "Since when this server may have been behind the database; under a second while all "
            "is well.",
        )
        self.jobs = self.gauge(
            "capsule_training_jobs", "Training jobs in the database, by status.", "status"
        )

    # --- declaring --------------------------------------------------------------------------

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Declare a counter; `_total` is added to its name."""
        return Counter(name, text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Declare a gauge."""
        return Gauge(name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        """Declare a histogram."""
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    # --- the edge ---------------------------------------------------------------------------

    def connection_made(self) -> None:
        """A client has connected."""
        self.connections.inc()

    def connection_lost(self) -> None:
        """A connection is over."""
        self.connections.dec()

    def connection_cut(self) -> None:
        """A connection was cut off, as there were far too many."""
        self.cut.inc()

    def request_finished(
        self, *, route: str, status: int, tasks: Sequence[str], code: str | None, seconds: float
    ) -> None:
        """A request is over.

        Args:
            route: the template of its path.
            status: of its reply.
            tasks: the distinct known tasks it asked for.
            code: of the error it was answered with.
            seconds: how long it took.
        """
        with self.lock:
            self.rank_tasks(every=UNREAD_S)
            for label in {self.label(task) for task in tasks} or ("",):
                self.requests_of(label, status).inc()
        self.request_seconds_of(route).observe(seconds)
        if code is not None:
            self.refused.labels(code).inc()

    def requests_of(self, label: str, status: int) -> Counter:
        """The series of a task's label and a status, which are quicker to find here; locked."""
        series = self.request_series.get((label, status))
        if series is None:
            series = self.request_series[label, status] = self.requests.labels(label, status)
        return series

    def request_seconds_of(self, route: str) -> Histogram:
        """The series of a route."""
        series = self.route_series.get(route)
        if series is None:
            series = self.route_series[route] = self.request_seconds.labels(route)
        return series

    def label(self, task: str) -> str:
        """Count a request for a task: under its name if it is among the busiest, else `_other`."""
        return task if self.ranking.count(task) else OTHER_TASKS

    def rank_tasks(self, every: float) -> None:
        """After so many seconds, hand labels on to the tasks that are busiest by now.

        The series of a task that loses its label ends; should it get one again, it begins at 0,
        which Prometheus takes for a restart. Its past is not added to `_other`, whose rate would
        show a burst that never was.
        """
        elapsed = self.clock() - self.ranked
        if elapsed < every:
            return
        self.ranked += elapsed
        for task in self.ranking.rank(elapsed, self.known):
            self.requests.remove_by_labels({"task": task})
            self.request_series.clear()

    def row_refused(self, code: str) -> None:
        """One row of a request got an error."""
        self.refused.labels(code).inc()

    def rows_truncated(self, rows: int) -> None:
        """That many texts of a request were cut."""
        self.truncated.inc(rows)

    def artefact_loaded(self, seconds: float) -> None:
        """An upload was accepted."""
        self.load_seconds.observe(seconds)

    # --- the engine -------------------------------------------------------------------------

    def tokenised(self, rows: int, seconds: float) -> None:
        """The rows of one request were rendered and tokenised."""
        self.tokenise_seconds.observe(seconds)

    def batch_finished(self, report: Batch) -> None:
        """The model ran a batch."""
        self.batch_size.observe(report.rows)
        self.batch_tokens.observe(report.tokens)
        self.batch_tasks.observe(report.tasks)
        self.padding_ratio.observe(report.padded_tokens / max(report.tokens, 1))
        self.prepare_seconds.labels("ahead" if report.ahead else "idle").observe(
            report.prepare_seconds
        )
        self.forward_seconds.observe(report.forward_seconds)
        for seconds in report.queue_seconds:
            self.queue_seconds.observe(seconds)

    def batch_failed(self, rows: int) -> None:
        """A batch of this many rows could not be prepared or run."""
        self.failed.inc(rows)

    def batch_dropped(self, rows: int) -> None:
        """A prepared batch of this many rows was not run, since nobody waited for any of them."""
        self.unwanted.inc(rows)

    def cancelled(self, rows: int) -> None:
        """A client went away while this many of its rows had no answer."""
        self.dropped.inc(rows)

    def expired(self, rows: int) -> None:
        """A request's time was up while this many of its rows had no answer."""
        self.late.inc(rows)

    def rejected(self, rows: int, reason: str) -> None:
        """The engine turned a request of this many rows away."""
        self.shed.labels(reason).inc(rows)

    # --- the registry -----------------------------------------------------------------------

    def capsules_served(self, count: int) -> None:
        """How many versions can be classified with."""
        self.servable.set(count)

    def load_finished(self, seconds: float) -> None:
        """How long reading the whole store took."""
        self.start_load_seconds.set(seconds)

    def task_followed(self) -> None:
        """A task was brought into step with what another process wrote."""
        self.followed.inc()

    # --- training jobs ----------------------------------------------------------------------

    def jobs_counted(self, counts: Mapping[str, int]) -> None:
        """How many training jobs there are, by status."""
        for status, count in counts.items():
            self.jobs.labels(status).set(count)

    # --- reading ----------------------------------------------------------------------------

    def watch(
        self,
        queue_depth: Callable[[], int],
        bank: Callable[[], Bank],
        known: Callable[[str], bool],
    ) -> None:
        """Read the server's state whenever the metrics are read.

        Args:
            queue_depth: rows that wait.
            bank: what the bank holds.
            known: whether a task exists.
        """
        self.known = known
        self.queue_depth.set_function(queue_depth)
        self.bank.read = bank

    def watch_follower(self, lag: Callable[[], float]) -> None:
        """Read how far behind the database this server may be whenever the metrics are read.

        Args:
            lag: seconds.
        """
        self.follower_lag.set_function(lag)

    def exposition(self) -> bytes:
        """The metrics in Prometheus' text format; their type is `MEDIA_TYPE`."""
        text = generate_latest(self.registry)
        # Only now, so that a series that ends has been read to its end.
        with self.lock:
            self.rank_tasks(every=RANK_S)
        return text
