"""Loads the backbone that a command works with."""

import torch

from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.cli.output import messages


def load_backbone(specification: str, device: str, threads: int | None) -> LoadedBackbone:
    """The backbone in float32, which capsules are trained in.

    Args:
        specification: `embedded`, a local folder or a hub id.
        device: where it runs.
        threads: CPU threads it may use; None leaves them one for each core.

    Raises:
        OptionError: the device does not exist here.
        BackboneError: the backbone cannot be had.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    with messages().status("loading the backbone"):
        return load(specification, device=device, dtype="float32")
