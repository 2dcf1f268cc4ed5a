from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from capsules.artefact.file import Capsule
from capsules.backbones.base import BackboneInfo, LoadedBackbone
from capsules.core import Encoding, Example, TokenBatch
from capsules.errors import DataError, DataFault, InputError, InputFault
from capsules.evaluation.runner import (
    BATCH_ROWS,
    encode,
    evaluate,
    in_batches,
    predict,
    probabilities,
)
from capsules.executors.torch import TorchExecutor
from capsules.injection import Injection
from capsules.layers import NamedLayers
from capsules.model import InjectedBackbone, shared_prompts
from capsules.variants.registry import variant
from tests.reference.bert import Bert
from tests.reference.capsule import (
    Capsule as Learned,
    chosen,
    probabilities as reference,
)
from tests.reference.maths import softmax
from tests.support.backbones import words
from tests.support.capsules import constant_capsule, random_capsule


@pytest.fixture
def executor(tiny: LoadedBackbone) -> TorchExecutor:
    return TorchExecutor(tiny.backbone)


@pytest.fixture
def capsule(info: BackboneInfo) -> Capsule:
    return random_capsule(info, labels=["c", "a", "b"], length=2)


def encodings(lengths: list[int]) -> list[Encoding]:
    return [Encoding(tuple(range(1, length + 1)), truncated=False) for length in lengths]


def test_batches_shrink_to_what_there_is_memory_for() -> None:
    sizes: list[int] = []
    progress: list[int] = []

    def cramped(tokens: TokenBatch) -> torch.Tensor:
        if len(tokens) > 20:
            raise torch.OutOfMemoryError("full")
        sizes.append(len(tokens))
        return tokens.input_ids.sum(dim=1)

    lengths = [row * 7 % 90 + 1 for row in range(90)]
    got = in_batches(
        encodings(lengths),
        cramped,
        pad_id=0,
        device=torch.device("cpu"),
        progress=lambda done, _: progress.append(done),
    )
    assert got.tolist() == [length * (length + 1) // 2 for length in lengths]
    assert sizes == [16] * 5 + [10]
    assert progress == [16, 32, 48, 64, 80, 90]


def test_a_text_that_does_not_fit_by_itself_is_too_much() -> None:
    def full(tokens: TokenBatch) -> torch.Tensor:
        raise torch.OutOfMemoryError("full")

    with pytest.raises(torch.OutOfMemoryError, match="full"):
        in_batches(encodings([9, 2]), full, pad_id=0, device=torch.device("cpu"))


def test_other_failures_of_a_batch_are_not_taken_for_a_lack_of_memory() -> None:
    def broken(tokens: TokenBatch) -> torch.Tensor:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        in_batches(encodings([3, 2]), broken, pad_id=0, device=torch.device("cpu"))


def test_rows_of_similar_length_share_a_batch_and_come_back_in_order() -> None:
    lengths = [row * 7 % 150 + 1 for row in range(150)]
    batches: list[list[int]] = []

    def measure(tokens: TokenBatch) -> torch.Tensor:
        batches.append(tokens.attention_mask.sum(dim=1).tolist())
        return tokens.input_ids.sum(dim=1)

    progress: list[tuple[int, int]] = []
    got = in_batches(
        encodings(lengths),
        measure,
        pad_id=0,
        device=torch.device("cpu"),
        progress=lambda done, total: progress.append((done, total)),
    )
    assert got.tolist() == [length * (length + 1) // 2 for length in lengths]
    assert [len(batch) for batch in batches] == [BATCH_ROWS, BATCH_ROWS, 22]
    assert progress == [(64, 150), (128, 150), (150, 150)]
    assert all(max(one) <= min(next) for one, next in pairwise(batches))


def test_batches_are_filled_up_with_the_padding_asked_for_where_they_are_wanted() -> None:
    seen: list[TokenBatch] = []

    def keep(tokens: TokenBatch) -> torch.Tensor:
        seen.append(tokens)
        return tokens.input_ids.double()

    got = in_batches(encodings([3, 1]), keep, pad_id=9, device=torch.device("cpu"))
    assert seen[0].input_ids.tolist() == [[1, 9, 9], [1, 2, 3]]
    assert (got.tolist(), got.dtype) == ([[1, 2, 3], [1, 9, 9]], torch.float64)
    # Which stands for a device that is not the processor.
    in_batches(encodings([2]), keep, pad_id=9, device=torch.device("meta"))
    assert seen[1].input_ids.is_meta


@pytest.mark.parametrize(
    ("form", "length", "layers"),
    [
        ("addition", 2, "all"),
        ("addition", 1, [2, 3]),
        ("prepending", 1, "latter-half"),
        ("extraction", 2, "odd"),
        ("projection", 1, "all"),
        ("task-only", 3, "first-half"),
        ("instance-only", 2, "input"),
    ],
)
def test_predictions_are_those_of_the_equations(
    tiny: LoadedBackbone,
    executor: TorchExecutor,
    form: str,
    length: int,
    layers: NamedLayers | list[int],
) -> None:
    capsule = random_capsule(
        tiny.info, labels=["c", "a", "b"], variant=form, length=length, layers=layers
    )
    texts = [words(count, count) for count in (1, 9, 4, 17)]
    found = predict(tiny, executor, capsule, [{"text": text} for text in texts])
    bert = Bert.from_folder(tiny.info.path)
    tensors = {name: value.double().numpy() for name, value in capsule.tensors.items()}
    learned = Learned(form, length, chosen(layers, bert.num_layers), tensors)
    for text, prediction in zip(texts, found, strict=True):
        (encoding,) = tiny.tokeniser.encode([text], 64)
        expected = reference(
            bert, encoding.input_ids, learned, tensors["head.weight"], tensors["head.bias"]
        )
        assert prediction.probs == pytest.approx(expected.tolist(), abs=1e-5)
        assert prediction.label == ["c", "a", "b"][expected.argmax()]
        assert prediction.score == max(prediction.probs)
        assert sum(prediction.probs) == pytest.approx(1.0, abs=1e-6)


def test_a_head_without_a_bias_has_none(tiny_llama: LoadedBackbone) -> None:
    capsule = random_capsule(tiny_llama.info, labels=4, length=2)
    assert "head.bias" not in capsule.tensors
    inputs = [{"text": words(count, count)} for count in (3, 11)]
    found = predict(tiny_llama, TorchExecutor(tiny_llama.backbone), capsule, inputs)
    for one, prediction in zip(inputs, found, strict=True):
        (encoding,) = tiny_llama.tokeniser.encode([one["text"]], 64)
        tokens = TokenBatch(
            torch.tensor([encoding.input_ids]),
            torch.ones(1, len(encoding.input_ids), dtype=torch.bool),
        )
        prompts = shared_prompts(variant("addition"), 2, (0, 1, 2, 3), capsule.tensors, 1)
        with torch.no_grad():
            features = InjectedBackbone(tiny_llama.backbone).features(tokens, prompts)[0]
        logits = capsule.tensors["head.weight"].numpy() @ features.numpy()
        assert prediction.probs == pytest.approx(softmax(logits).tolist(), abs=1e-5)


@pytest.mark.parametrize("batch", [1, 70])
def test_a_backbone_that_answers_in_words_is_asked_for_them(
    tiny_t5: LoadedBackbone, batch: int
) -> None:
    verbalizers = {"no": "w1", "never": "w1 w2", "yes": "w3"}
    capsule = random_capsule(
        tiny_t5.info, labels=["yes", "no", "never"], verbalizers=verbalizers, length=2
    )
    inputs = [{"text": words(1 + row % 9, row)} for row in range(batch)]
    found = predict(tiny_t5, TorchExecutor(tiny_t5.backbone), capsule, inputs)
    # The same by one decoder step after another, each over the whole vocabulary.
    one, two, three, end = (tiny_t5.tokeniser.word(word)[0] for word in ("w1", "w2", "w3", "[SEP]"))
    for row in {0, batch // 2, batch - 1}:
        begins = softmax(said(tiny_t5, capsule, inputs[row]["text"], [])[[one, three]])
        goes_on = softmax(said(tiny_t5, capsule, inputs[row]["text"], [one])[[end, two]])
        expected = [begins[1], begins[0] * goes_on[0], begins[0] * goes_on[1]]
        assert found[row].probs == pytest.approx(expected, abs=1e-5)
        assert found[row].label == ["yes", "no", "never"][int(np.argmax(expected))]


def said(
    loaded: LoadedBackbone, capsule: Capsule, text: str, answer: Sequence[int]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[V] scores of the word after the first ones of an answer, the capsule's among the states."""
    (encoding,) = loaded.tokeniser.encode([text], 64)
    tokens = TokenBatch(
        torch.tensor([encoding.input_ids]), torch.ones(1, len(encoding.input_ids), dtype=torch.bool)
    )
    prompts = shared_prompts(variant("addition"), 2, (0, 1, 2, 3), capsule.tensors, 1)
    model: Any = loaded.backbone.model
    with torch.no_grad():
        injection = Injection(prompts, tokens.attention_mask, torch.float32)
        slots = torch.zeros(1, 2, loaded.info.hidden_size)
        embedded = torch.cat((slots, loaded.backbone.embed(tokens)), dim=1)
        states = loaded.backbone.run(embedded, injection)
        output = model(encoder_outputs=(states,), decoder_input_ids=torch.tensor([[0, *answer]]))
    logits: np.ndarray[Any, np.dtype[np.float64]] = output.logits[0, -1].double().numpy()
    return logits


def test_a_row_is_answered_the_same_alone_and_among_others(
    tiny: LoadedBackbone, executor: TorchExecutor, capsule: Capsule
) -> None:
    inputs = [{"text": words(1 + number % 23, number)} for number in range(80)]
    together = predict(tiny, executor, capsule, inputs)
    for number in (0, 22, 50, 79):
        (alone,) = predict(tiny, executor, capsule, [inputs[number]])
        assert together[number].probs == pytest.approx(alone.probs, abs=1e-5)


def test_a_long_text_is_answered_as_what_is_left_of_it(
    tiny: LoadedBackbone, executor: TorchExecutor, info: BackboneInfo
) -> None:
    capsule = random_capsule(info, length=3, max_length=20)
    (encoding,) = encode(tiny, capsule, [{"text": words(40)}])
    assert (len(encoding.input_ids), encoding.truncated) == (17, True)
    long, cut = predict(tiny, executor, capsule, [{"text": words(40)}, {"text": words(15)}])
    assert long.probs == pytest.approx(cut.probs, abs=1e-6)


def test_the_template_is_filled_in(
    tiny: LoadedBackbone, executor: TorchExecutor, info: BackboneInfo
) -> None:
    pair = random_capsule(info, template="w1 : {b} ; {a}")
    plain = random_capsule(info)
    (one,) = predict(tiny, executor, pair, [{"a": "w5", "b": "w6 w7"}])
    (other,) = predict(tiny, executor, plain, [{"text": "w1 : w6 w7 ; w5"}])
    assert one.probs == pytest.approx(other.probs, abs=1e-6)


def test_nothing_asked_nothing_answered(
    tiny: LoadedBackbone, executor: TorchExecutor, capsule: Capsule
) -> None:
    assert predict(tiny, executor, capsule, []) == []


@pytest.mark.parametrize(("form", "room"), [("addition", 17), ("prepending", 16)])
def test_what_a_variant_takes_is_not_left_to_the_text(
    tiny: LoadedBackbone, form: str, room: int
) -> None:
    capsule = random_capsule(tiny.info, variant=form, length=3, max_length=20)
    (encoding,) = encode(tiny, capsule, [{"text": words(40)}])
    assert (len(encoding.input_ids), encoding.truncated) == (room, True)


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"text": " "}, InputFault.EMPTY_TEXT),
        ({"words": "w1"}, InputFault.MISSING_INPUT),
        ({"text": "w1", "more": "w2"}, InputFault.UNEXPECTED_INPUT),
        ({"text": "\ud800"}, InputFault.INVALID_TEXT),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    tiny: LoadedBackbone,
    executor: TorchExecutor,
    capsule: Capsule,
    inputs: dict[str, str],
    code: InputFault,
) -> None:
    with pytest.raises(InputError) as refused:
        predict(tiny, executor, capsule, [{"text": "w1"}, inputs])
    assert refused.value.code == code


def test_probabilities_are_kept_in_float32_on_the_cpu(
    tiny: LoadedBackbone, executor: TorchExecutor, capsule: Capsule
) -> None:
    rows = encode(tiny, capsule, [{"text": "w1"}, {"text": "w2 w3"}])
    scores = probabilities(tiny, executor, rows, capsule)
    assert (scores.shape, scores.dtype, scores.device.type) == ((2, 3), torch.float32, "cpu")


def test_an_evaluation_counts_what_is_right(
    tiny: LoadedBackbone, executor: TorchExecutor, info: BackboneInfo
) -> None:
    always_first = constant_capsule(info, [0.7, 0.2, 0.1])
    examples = [Example({"text": words(3, n)}, f"label-{n % 2}") for n in range(10)]
    progress: list[tuple[int, int]] = []
    report = evaluate(
        tiny,
        executor,
        always_first,
        examples,
        progress=lambda done, total: progress.append((done, total)),
    )
    assert report.accuracy == 0.5
    assert report.confusion == ((5, 0, 0), (5, 0, 0), (0, 0, 0))
    assert progress == [(10, 10)]


def test_a_label_that_the_capsule_does_not_have_is_refused(
    tiny: LoadedBackbone, executor: TorchExecutor, capsule: Capsule
) -> None:
    with pytest.raises(DataError) as refused:
        evaluate(tiny, executor, capsule, [Example({"text": "w1"}, "z")])
    assert refused.value.code == DataFault.UNKNOWN_LABEL
