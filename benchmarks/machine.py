"""Describes the machine that a result was measured on."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import torch

from benchmarks.record import Record
from capsules.reproduce.machine import processor

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "torch",
    "onnxruntime",
    "transformers",
    "tokenizers",
    "numpy",
    "fastapi",
    "uvicorn",
    "uvloop",
)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
GIB = 1024**3


class Machine(Record):
    """Where and with what a result was measured.

    Attributes:
        cpu: the processor's model.
        cpu_capability: the widest vector instructions that torch uses on it.
        physical_cores: of the whole machine; None where the system does not tell.
        logical_cores: likewise, hyper-threads counted.
        usable_cores: those that this process may run on.
        memory_gib: of the machine.
        gpu: its first CUDA device, or None.
        system: operating system and release.
        python: version of the interpreter.
        packages: versions of those that matter.
        torch_threads: torch's threads for one operation, where nobody sets another number.
        thread_variables: environment variables about threads that were set.
        load_average: processes that wanted to run in the minute before, those of others included.
        commit: of the project's working tree; None where there is no git.
        changed: whether the tree had changes that are in no commit.
    """

    cpu: str
    cpu_capability: str
    physical_cores: int | None
    logical_cores: int
    usable_cores: int
    memory_gib: float
    gpu: str | None
    system: str
    python: str
    packages: dict[str, str]
    torch_threads: int
    thread_variables: dict[str, str]
    load_average: float
    commit: str | None
    changed: bool | None

    @property
    def busy(self) -> bool:
        """Whether something else was at work, so that timings are noisy."""
        return self.load_average > self.usable_cores / 4


def describe_machine() -> Machine:
    """Look at the machine as it is now."""
    return Machine(
        cpu=processor(),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=psutil.cpu_count() or 1,
        usable_cores=len(psutil.Process().cpu_affinity() or [0]),
        memory_gib=round(psutil.virtual_memory().total / GIB, 1),
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        system=platform.platform(),
        python=platform.python_version(),
        packages=package_versions(),
        torch_threads=torch.get_num_threads(),
        thread_variables={
            name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ
        },
        load_average=round(os.getloadavg()[0], 2),
        commit=git("rev-parse", "HEAD"),
        changed=None if (status := git("status", "--porcelain")) is None else bool(status),
    )


def package_versions() -> dict[str, str]:
    """The installed ones of the packages that matter."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def git(*arguments: str) -> str | None:
    """What git says of the project's working tree; None where it has nothing to say."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
