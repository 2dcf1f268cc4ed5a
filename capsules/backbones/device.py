"""Device and dtype options, checked against this machine."""

import re

import torch

from capsules.errors import OptionError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_device(device: str) -> torch.device:
    """The device an option means.

    Args:
        device: `auto` (CUDA where there is one), `cpu`, `cuda` or `cuda:N`.

    Raises:
        OptionError: it is none of these, or this machine does not have it.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cpu":
        return torch.device("cpu")
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise OptionError(
            f"The device {device!r} is not known; choose auto, cpu, cuda or cuda:N.",
            field="device",
        )
    if not torch.cuda.is_available():
        raise OptionError(
            f"The device {device!r} needs CUDA, which PyTorch does not find on this machine; "
            "choose cpu or auto, or install a CUDA build of torch.",
            field="device",
        )
    resolved = torch.device(device)
    if (resolved.index or 0) >= torch.cuda.device_count():
        raise OptionError(
            f"The device {device!r} does not exist; this machine has "
            f"{torch.cuda.device_count()} CUDA device(s), counted from cuda:0.",
            field="device",
        )
    return resolved


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The dtype an option means on a device.

    Args:
        dtype: `auto` (bfloat16 on CUDA devices that have it, else float32), `float32`,
            `bfloat16` or `float16`.
        device: where the backbone will run.

    Raises:
        OptionError: it is none of these, or is float16 on a CPU.
    """
    if dtype == "auto":
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if fast else torch.float32
    if dtype not in DTYPES:
        raise OptionError(
            f"The dtype {dtype!r} is not known; choose auto, float32, bfloat16 or float16.",
            field="dtype",
        )
    if dtype == "float16" and device.type == "cpu":
        raise OptionError(
            "float16 on a CPU is slow and inexact; choose float32 or bfloat16.", field="dtype"
        )
    return DTYPES[dtype]
