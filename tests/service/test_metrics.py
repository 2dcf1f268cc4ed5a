from concurrent.futures import ThreadPoolExecutor

from prometheus_client.parser import text_string_to_metric_families

from capsules.artefact.manifest import TASK_NAME
from service.engine.bank import BankStats
from service.engine.observer import BatchReport, EngineObserver
from service.metrics import OTHER_TASKS, RANK_S, UNREAD_S, Metrics
from service.registry.ports import RegistryObserver

HELD = BankStats(resident=7, host=2, pinned=1, bytes=700, host_bytes=200, page_ins=5, evictions=4)
NO_CAPSULES = BankStats(resident=0, host=0, pinned=0, bytes=0, host_bytes=0)


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def finished(metrics: Metrics, *tasks: str, status: int = 200, code: str | None = None) -> None:
    metrics.request_finished(
        route="/v1/classify", status=status, tasks=tasks, code=code, seconds=0.01
    )


def test_it_observes_the_engine_and_the_registry() -> None:
    engine: EngineObserver = Metrics(tasks=1)
    registry: RegistryObserver = Metrics(tasks=1)
    assert isinstance(engine, Metrics)
    assert isinstance(registry, Metrics)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_tasks_have_labels_while_there_is_room_and_then_share_one() -> None:
    metrics = Metrics(tasks=2)
    for task in ("a", "b", "c", "d", "a"):
        finished(metrics, task)
    assert sample(metrics, "capsule_requests_total", task="a", code="200") == 2
    assert sample(metrics, "capsule_requests_total", task="b", code="200") == 1
    assert sample(metrics, "capsule_requests_total", task="_other", code="200") == 2
    assert sample(metrics, "capsule_requests_total", task="c", code="200") is None


def test_no_label_is_shared_with_a_task_of_that_name() -> None:
    assert not TASK_NAME.fullmatch(OTHER_TASKS)


def test_a_busy_late_comer_takes_the_label_of_an_idle_task() -> None:
    clock = Clock()
    metrics = Metrics(tasks=2, clock=clock)
    for task in ("idle", "busy", *["busy", "late"] * 10):
        finished(metrics, task)
    finished(metrics, "idle", status=404)
    metrics.exposition()
    assert sample(metrics, "capsule_requests_total", task="late", code="200") is None
    clock.now += RANK_S
    assert b'task="idle"' in metrics.exposition(), "read to its end"
    assert b'task="idle"' not in metrics.exposition()
    for task in ("idle", "busy", "late"):
        finished(metrics, task)
    assert sample(metrics, "capsule_requests_total", task="late", code="200") == 1
    assert sample(metrics, "capsule_requests_total", task="busy", code="200") == 12
    assert sample(metrics, "capsule_requests_total", task="_other", code="200") == 11
    assert sample(metrics, "capsule_requests_total", task="idle", code="200") is None


def test_a_deleted_task_gives_its_label_back() -> None:
    clock = Clock()
    metrics = Metrics(tasks=1, clock=clock)
    tasks = {"old", "new"}
    metrics.watch(lambda: 0, lambda: NO_CAPSULES, tasks.__contains__)
    for task in ("old", "old", "old", "new"):
        finished(metrics, task)
    tasks.remove("old")
    clock.now += RANK_S
    metrics.exposition()
    assert sample(metrics, "capsule_requests_total", task="old", code="200") is None
    assert metrics.ranking.scores.keys() == {"new"}
    finished(metrics, "new")
    assert sample(metrics, "capsule_requests_total", task="new", code="200") == 1
    assert sample(metrics, "capsule_requests_total", task="_other", code="200") == 1


def test_deleted_tasks_are_forgotten_where_nobody_reads_the_metrics() -> None:
    clock = Clock()
    metrics = Metrics(tasks=1, clock=clock)
    metrics.watch(lambda: 0, lambda: NO_CAPSULES, {"new"}.__contains__)
    finished(metrics, "old")
    clock.now += UNREAD_S
    finished(metrics, "new")
    assert metrics.ranking.scores.keys() == {"new"}
    assert sample(metrics, "capsule_requests_total", task="new", code="200") == 1


def test_without_labels_every_task_is_among_the_others() -> None:
    clock = Clock()
    metrics = Metrics(tasks=0, clock=clock)
    for _ in range(2):
        finished(metrics, "a")
        clock.now += UNREAD_S
        metrics.exposition()
    assert sample(metrics, "capsule_requests_total", task="_other", code="200") == 2
    assert sample(metrics, "capsule_requests_total", task="a", code="200") is None


def test_a_request_counts_once_for_each_task_and_once_where_there_is_none() -> None:
    metrics = Metrics(tasks=2)
    finished(metrics, "a", "b", "c", "d")
    finished(metrics, status=404, code="task_not_found")
    for task in ("a", "b", "_other"):
        assert sample(metrics, "capsule_requests_total", task=task, code="200") == 1
    assert sample(metrics, "capsule_requests_total", task="", code="404") == 1
    assert sample(metrics, "capsule_rejected_total", reason="task_not_found") == 1
    name = "capsule_request_duration_seconds_count"
    assert sample(metrics, name, route="/v1/classify") == 2


def counts_by_task(metrics: Metrics) -> dict[str, float]:
    (family,) = metrics.requests.collect()
    return {s.labels["task"]: s.value for s in family.samples if s.name.endswith("_total")}


def test_nothing_is_lost_from_many_threads() -> None:
    metrics = Metrics(tasks=5, clock=Clock())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: finished(metrics, f"task-{number % 50}"), range(2000)))
    counts = counts_by_task(metrics)
    assert len(counts) == 6
    assert sum(counts.values()) == 2000


def test_labels_that_change_hands_stay_bounded_from_many_threads() -> None:
    clock = Clock()
    metrics = Metrics(tasks=3, clock=clock)

    def work(number: int) -> None:
        finished(metrics, f"task-{number // 100}-{number % 10}")
        if number % 50 == 0:
            clock.now += UNREAD_S
            metrics.exposition()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(2000)))
    assert counts_by_task(metrics).keys() <= {*metrics.ranking.labelled, OTHER_TASKS}
    assert not any(task.startswith("task-0-") for task in metrics.ranking.labelled)


def test_batches_are_measured() -> None:
    metrics = Metrics(tasks=1)
    metrics.batch_finished(
        BatchReport(
            rows=4,
            tokens=40,
            padded_tokens=50,
            tasks=3,
            forward_seconds=0.02,
            queue_seconds=(0.001, 0.002, 0.003, 0.004),
            prepare_seconds=0.005,
            ahead=True,
        )
    )
    metrics.tokenised(4, 0.001)
    assert sample(metrics, "capsule_batch_size_sum") == 4
    assert sample(metrics, "capsule_batch_tokens_sum") == 40
    assert sample(metrics, "capsule_batch_tasks_sum") == 3
    assert sample(metrics, "capsule_batch_padding_ratio_sum") == 1.25
    assert sample(metrics, "capsule_forward_seconds_sum") == 0.02
    assert sample(metrics, "capsule_prepare_seconds_sum", model="ahead") == 0.005
    assert sample(metrics, "capsule_queue_seconds_count") == 4
    assert sample(metrics, "capsule_tokenise_seconds_count") == 1


def test_rows_that_got_no_answer_are_counted() -> None:
    metrics = Metrics(tasks=1)
    metrics.cancelled(3)
    metrics.expired(2)
    metrics.rejected(5, "queue_full")
    metrics.rejected(6, "caller_queue_full")
    metrics.batch_failed(7)
    metrics.batch_dropped(8)
    metrics.row_refused("empty_text")
    metrics.rows_truncated(4)
    assert sample(metrics, "capsule_cancelled_total") == 3
    assert sample(metrics, "capsule_expired_total") == 2
    assert sample(metrics, "capsule_shed_rows_total", reason="queue_full") == 5
    assert sample(metrics, "capsule_shed_rows_total", reason="caller_queue_full") == 6
    assert sample(metrics, "capsule_batch_failed_rows_total") == 7
    assert sample(metrics, "capsule_batch_dropped_rows_total") == 8
    assert sample(metrics, "capsule_rejected_total", reason="empty_text") == 1
    assert sample(metrics, "capsule_truncated_total") == 4


def test_gauges_are_read_when_the_metrics_are() -> None:
    metrics = Metrics(tasks=1)
    depth = [0]
    metrics.watch(lambda: depth[0], lambda: HELD, lambda task: True)
    depth[0] = 9
    metrics.capsules_served(8)
    metrics.load_finished(1.5)
    metrics.artefact_loaded(0.1)
    metrics.watch_follower(lambda: 2.5)
    metrics.task_followed()
    metrics.jobs_counted({"queued": 3, "running": 0})
    assert sample(metrics, "capsule_queue_depth") == 9
    assert sample(metrics, "capsule_training_jobs", status="queued") == 3
    assert sample(metrics, "capsule_training_jobs", status="running") == 0
    assert sample(metrics, "capsule_capsules_loaded", tier="device") == 7
    assert sample(metrics, "capsule_capsules_loaded", tier="host") == 2
    assert sample(metrics, "capsule_bank_bytes", tier="device") == 700
    assert sample(metrics, "capsule_bank_bytes", tier="host") == 200
    assert sample(metrics, "capsule_bank_page_ins_total") == 5
    assert sample(metrics, "capsule_bank_evictions_total") == 4
    assert sample(metrics, "capsule_versions_served") == 8
    assert sample(metrics, "capsule_start_load_seconds") == 1.5
    assert sample(metrics, "capsule_load_seconds_count") == 1
    assert sample(metrics, "capsule_follower_lag_seconds") == 2.5
    assert sample(metrics, "capsule_tasks_followed_total") == 1


def test_every_metric_has_our_prefix_and_says_what_it_is() -> None:
    families = list(text_string_to_metric_families(Metrics(tasks=1).exposition().decode()))
    assert len(families) > 15
    for family in families:
        assert family.name.startswith("capsule_")
        assert family.documentation.endswith(".")


def test_two_servers_do_not_share_metrics() -> None:
    one, other = Metrics(tasks=1), Metrics(tasks=1)
    one.cancelled(1)
    assert sample(other, "capsule_cancelled_total") == 0
