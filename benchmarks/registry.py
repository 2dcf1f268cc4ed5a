"""The benchmarks by name; a new one is a file and a line here."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from benchmarks.context import Context
from benchmarks.errors import BenchmarkError
from benchmarks.machine import describe_machine
from benchmarks.result import Findings, Result, now

BENCHMARKS = {
    "engine_overhead": "benchmarks.engine_overhead",
    "http_overhead": "benchmarks.http_overhead",
    "front_end": "benchmarks.front_end",
    "executors": "benchmarks.executors",
    "mixed_tasks": "benchmarks.mixed_tasks",
    "limit": "benchmarks.limit",
    "startup_memory": "benchmarks.startup_memory",
    "memory": "benchmarks.memory",
    "hot_swap": "benchmarks.hot_swap",
    "rivals": "benchmarks.rivals",
    "gpu": "benchmarks.gpu",
    "training": "benchmarks.training",
    "co_training": "benchmarks.co_training",
}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One script.

    Attributes:
        name: of it and of its result file.
        question: what it answers, in a sentence.
        measure: answers it.
    """

    name: str
    question: str
    measure: Callable[[Context], Findings]

    def run(self, context: Context) -> Result:
        """Measure, and say where and when that was.

        Raises:
            BenchmarkError: it cannot run here, or its values cannot be trusted.
        """
        machine = describe_machine()
        recorded_at = now()
        return Result(
            benchmark=self.name,
            question=self.question,
            recorded_at=recorded_at,
            machine=machine,
            findings=self.measure(context),
        )


def benchmark(name: str) -> Benchmark:
    """The benchmark of that name.

    Raises:
        BenchmarkError: there is none.
    """
    if name not in BENCHMARKS:
        raise BenchmarkError(f"There is no benchmark {name!r}; choose of {', '.join(BENCHMARKS)}.")
    module = import_module(BENCHMARKS[name])
    return Benchmark(name=name, question=module.QUESTION, measure=module.measure)
