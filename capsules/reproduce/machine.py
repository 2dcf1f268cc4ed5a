"""Where a run was made, and how much memory it took."""

import os
import platform
import resource
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict

PACKAGES = ("capsule-server", "torch", "transformers", "tokenizers", "numpy", "peft")
MIB = 1024**2
# What `ru_maxrss` counts in: bytes on macOS, KiB elsewhere.
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Machine(BaseModel):
    """A machine and what ran on it.

    Attributes:
        device: where the backbone was: the GPU's name, or the processor's.
        cores: that the process may run on.
        threads: of torch.
        system: operating system and release.
        python: version of the interpreter.
        packages: versions of those that matter.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str
    cores: int
    threads: int
    system: str
    python: str
    packages: dict[str, str]


def describe(device: torch.device) -> Machine:
    """The machine as it is now, for a backbone on `device`."""
    return Machine(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        cores=cores(),
        threads=torch.get_num_threads(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        packages=installed(),
    )


def cores() -> int:
    """Those that the process may run on; all of them where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor(information: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name."""
    if information.exists():
        for line in information.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def installed() -> dict[str, str]:
    """The versions of the packages that are there."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def watch_memory(device: torch.device) -> None:
    """Begin to watch for a new peak, where the device can."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_mib(device: torch.device) -> float:
    """The highest use of memory: on CUDA since :func:`watch_memory`, else since the start."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / MIB, 1)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(used * MAXRSS_UNIT / MIB, 1)
