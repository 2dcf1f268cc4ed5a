"""Finished runs as if they had been made, and a folder of tiny sets."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from capsules.reproduce.machine import Machine
from capsules.reproduce.record import Candidate, Configuration, Frozen, Measured, Row, Settings
from tests.capsules.reproduce.sets import write_set

MakeRow = Callable[..., Row]

BACKBONE = Frozen(
    id="tiny/encoder",
    specification="embedded",
    family="encoder-only",
    architecture="bert",
    parameters=1_000_000,
    fingerprint="f" * 64,
)
CONFIGURATION = Configuration(backbone=BACKBONE, settings=Settings(epochs=3))
PARAMETERS = {"capsule": 3_000, "task-only": 3_000, "linear-head": 1_000, "lora": 60_000}


@pytest.fixture
def configuration() -> Configuration:
    return CONFIGURATION


@pytest.fixture
def make_row() -> MakeRow:
    """A finished run; its attributes may be replaced."""

    def make(
        task: str = "cb",
        method: str = "capsule",
        seed: int = 0,
        score: float = 0.75,
        *,
        rates: tuple[float, ...] = (0.02,),
        **attributes: Any,
    ) -> Row:
        measured = Measured(score=score, accuracy=score, macro_f1=score, rows=50)
        return Row(
            **{
                "identity": f"{task}-{method}-{seed}",
                "task": task,
                "method": method,
                "seed": seed,
                "metric": "accuracy-and-f1" if task == "cb" else "accuracy",
                "configuration": CONFIGURATION,
                "candidates": [
                    Candidate(learning_rate=rate, validation=measured, seconds=6.0)
                    for rate in rates
                ],
                "learning_rate": rates[0],
                "trainable_parameters": PARAMETERS.get(method, 5_000),
                "best_epoch": 2,
                "epochs": 3,
                "train_rows": 225,
                "validation": measured,
                "test": measured,
                "seconds": 6.0,
                "peak_memory_mib": 800.0,
                "note": None,
                "recorded_at": datetime(2026, 3, 1, 12, tzinfo=UTC),
                "machine": Machine(
                    device="Abacus 5",
                    cores=2,
                    threads=2,
                    system="Linux 6",
                    python="3.11.7",
                    packages={"torch": "2.13.0"},
                ),
                **attributes,
            }
        )

    return make


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with CB and trec."""
    folder = tmp_path / "data"
    write_set(folder, "cb")
    write_set(folder, "trec")
    return folder
