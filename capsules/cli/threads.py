"""How many CPU threads a command may use."""

import torch


def limit_threads(threads: int | None) -> None:
    """Let tensor operations use so many threads; None leaves them one for each core."""
    if threads is not None:
        torch.set_num_threads(threads)
