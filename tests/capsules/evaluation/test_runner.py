from itertools import pairwise

import pytest
import torch

from capsules.artefact.file import Capsule
from capsules.backbones.base import BackboneInfo, LoadedBackbone
from capsules.core import Encoding, Example
from capsules.errors import DataError, DataFault, InputError, InputFault
from capsules.evaluation.runner import (
    BATCH_ROWS,
    encode,
    evaluate,
    features,
    predict,
    probabilities,
)
from capsules.executors.torch import TorchExecutor
from capsules.injection import Prompts
from tests.reference.bert import Bert
from tests.reference.capsule import probabilities as reference
from tests.support.backbones import words
from tests.support.capsules import constant_capsule, random_capsule
from tests.support.executors import RecordingExecutor


@pytest.fixture
def executor(tiny: LoadedBackbone) -> TorchExecutor:
    return TorchExecutor(tiny.backbone)


@pytest.fixture
def capsule(info: BackboneInfo) -> Capsule:
    return random_capsule(info, labels=["c", "a", "b"], length=2)


def bare(rows: int) -> Prompts:
    return Prompts()


def encodings(lengths: list[int]) -> list[Encoding]:
    return [Encoding(tuple(range(1, length + 1)), truncated=False) for length in lengths]


def test_rows_of_similar_length_share_a_batch_and_come_back_in_order() -> None:
    lengths = [row * 7 % 150 + 1 for row in range(150)]
    executor = RecordingExecutor(2)

    def number(states: torch.Tensor) -> torch.Tensor:
        rows = [float(len(ids)) for ids in executor.batches[-1]]
        return torch.tensor(rows).unsqueeze(1) * states

    executor.before = number
    progress: list[tuple[int, int]] = []
    got = features(
        executor,
        encodings(lengths),
        bare,
        pad_id=0,
        progress=lambda done, total: progress.append((done, total)),
    )
    assert got[:, 0].tolist() == lengths
    assert [len(batch) for batch in executor.batches] == [BATCH_ROWS, BATCH_ROWS, 22]
    assert progress == [(64, 150), (128, 150), (150, 150)]
    widths = [[len(ids) for ids in batch] for batch in executor.batches]
    assert all(max(one) <= min(next) for one, next in pairwise(widths))


def test_every_batch_gets_prompts_for_as_many_rows() -> None:
    asked: list[int] = []

    def prompts(rows: int) -> Prompts:
        asked.append(rows)
        return Prompts()

    features(RecordingExecutor(2), encodings([3] * 70), prompts, pad_id=0)
    assert asked == [64, 6]


def test_predictions_are_those_of_the_equations(
    tiny: LoadedBackbone, executor: TorchExecutor, capsule: Capsule
) -> None:
    texts = [words(count, count) for count in (1, 9, 4, 17)]
    found = predict(tiny, executor, capsule, [{"text": text} for text in texts])
    bert = Bert.from_folder(tiny.info.path)
    tensors = {name: value.double().numpy() for name, value in capsule.tensors.items()}
    for text, prediction in zip(texts, found, strict=True):
        (encoding,) = tiny.tokeniser.encode([text], 64)
        expected = reference(
            bert,
            encoding.input_ids,
            tensors["capsule"],
            tensors["head.weight"],
            tensors["head.bias"],
        )
        assert prediction.probs == pytest.approx(expected.tolist(), abs=1e-5)
        assert prediction.label == ["c", "a", "b"][expected.argmax()]
        assert prediction.score == max(prediction.probs)
        assert sum(prediction.probs) == pytest.approx(1.0, abs=1e-6)


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
    scores = probabilities(executor, rows, capsule, pad_id=0)
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
