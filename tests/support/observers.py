"""An engine observer that counts."""

import threading
from collections import Counter

from service.engine.observer import BatchReport


class CountingObserver:
    """Adds up what it is told; the counts are zero where nothing was."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.reports: list[BatchReport] = []

    def count(self, name: str, rows: int) -> None:
        with self.lock:
            self.counts[name] += rows

    def tokenised(self, rows: int, seconds: float) -> None:
        assert seconds >= 0
        self.count("tokenised", rows)

    def batch_finished(self, report: BatchReport) -> None:
        self.reports.append(report)
        self.count("batched", report.rows)

    def batch_failed(self, rows: int) -> None:
        self.count("failed", rows)

    def batch_dropped(self, rows: int) -> None:
        self.count("dropped", rows)

    def cancelled(self, rows: int) -> None:
        self.count("cancelled", rows)

    def expired(self, rows: int) -> None:
        self.count("expired", rows)

    def rejected(self, rows: int, reason: str) -> None:
        self.count(f"rejected:{reason}", rows)
