import numpy as np
import torch

from service.engine.transfer import to_device


def test_vectors_arrive_as_they_left():
    first, second = to_device([np.array([3, 1]), np.array([2])], torch.device("cpu"))
    assert first.tolist() == [3, 1]
    assert second.tolist() == [2]
    assert first.dtype == torch.int64
