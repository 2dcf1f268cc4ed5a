import pytest
import torch

from capsules.analysis.attention import attention
from capsules.core import Example
from capsules.reproduce.insight import answers, inspect, layer_means, with_fixed
from tests.support.backbones import WORDS
from tests.support.capsules import random_capsule

EXAMPLES = [
    Example(inputs={"text": " ".join(WORDS[number : number + 2 + number % 4])}, label="label-0")
    for number in range(0, 24, 3)
]


@pytest.fixture
def capsule(tiny):
    return random_capsule(tiny.info)


@pytest.fixture
def task_only(tiny):
    return random_capsule(tiny.info, variant="task-only", seed=1)


def test_mean_of_the_first_layer_is_that_of_the_embedded_text(tiny, capsule):
    """There is nothing in the capsule's place yet: it counts as zero, as the method has it."""
    means = layer_means(tiny, capsule, EXAMPLES)
    assert means.shape == (len(EXAMPLES), tiny.info.num_layers, tiny.info.hidden_size)
    (encoding,) = tiny.tokeniser.encode([EXAMPLES[2].inputs["text"]], tiny.info.max_tokens)
    from_text = embedded(tiny, encoding.input_ids).mean(dim=0)
    torch.testing.assert_close(means[2, 0], from_text, rtol=1e-4, atol=1e-5)


def embedded(tiny, ids):
    """[T, D] as the backbone embeds a single text."""
    from_ids = torch.tensor([ids])
    with torch.no_grad():
        return tiny.backbone.model.embeddings(input_ids=from_ids)[0]


def test_what_is_seen_is_what_the_tensors_say(tiny, capsule, task_only):
    found = inspect(tiny, capsule, task_only, EXAMPLES, task="cb", seed=4)
    assert (found.task, found.seed, found.texts) == ("cb", 4, len(EXAMPLES))
    assert [one.layer for one in found.layers] == [1, 2, 3]
    means = layer_means(tiny, capsule, EXAMPLES)
    first = found.layers[0]
    assert first.vector == pytest.approx(capsule.tensors["capsule"][0].norm().item(), abs=1e-3)
    plain = task_only.tensors["capsule"][0].norm().item()
    assert first.vector_task_only == pytest.approx(plain, abs=1e-3)
    assert first.mean == pytest.approx(means[:, 0].mean(dim=0).norm().item(), abs=1e-3)
    spread = means[:, 0].var(dim=0, unbiased=False).sum().sqrt().item()
    assert first.spread == pytest.approx(spread, abs=1e-3)
    seen = [attention(tiny, capsule, one.inputs).to_capsule[0].mean().item() for one in EXAMPLES]
    assert first.attention == pytest.approx(sum(seen) / len(seen), abs=1e-3)
    right = answers(tiny, capsule, EXAMPLES).count("label-0")
    assert found.accuracy == right / len(EXAMPLES)


def test_a_single_text_has_no_spread_and_answers_alike(tiny, capsule, task_only):
    found = inspect(tiny, capsule, task_only, EXAMPLES[:1], task="cb", seed=0)
    assert [one.spread for one in found.layers] == [0, 0, 0]
    assert found.same_answers == 1
    assert found.fixed_accuracy == found.accuracy


def test_fixed_mean_is_added_to_the_vectors(tiny, capsule):
    average = torch.ones(3, tiny.info.hidden_size)
    fixed = with_fixed(capsule, average)
    assert fixed.manifest.variant == "task-only"
    torch.testing.assert_close(fixed.tensors["capsule"], capsule.tensors["capsule"] + 1)
    assert torch.equal(fixed.tensors["head.weight"], capsule.tensors["head.weight"])
