import torch

from service.engine.batcher import Limits
from service.engine.warm_up import blank_prompts, warm_up_shapes


class TestWarmUp:
    def test_one_row_and_a_full_batch_of_each_length(self):
        limits = Limits(max_rows=32, max_tokens=2048)
        assert list(warm_up_shapes(limits, 512)) == [(1, 16), (32, 16), (1, 128), (15, 128)]

    def test_no_text_is_longer_than_the_backbone_takes_and_no_batch_empty(self):
        limits = Limits(max_rows=4, max_tokens=10)
        assert list(warm_up_shapes(limits, 64)) == [(1, 16), (1, 16), (1, 64), (1, 64)]

    def test_the_blank_capsules_fit_the_backbone(self, info):
        (group,) = blank_prompts(info, 3, torch.device("cpu")).groups
        assert group.tensors["capsule"].shape == (3, info.num_layers, 1, info.hidden_size)
