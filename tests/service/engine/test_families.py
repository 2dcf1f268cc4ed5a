"""Every family serves every variant, any mix of them in one batch."""

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from capsules.artefact.file import Capsule
from capsules.backbones.base import LoadedBackbone
from capsules.evaluation.runner import predict
from capsules.executors.torch import TorchExecutor
from service.engine.config import EngineConfig
from service.engine.engine import Engine
from service.engine.records import RowAnswer
from tests.support.backbones import tiny_family, words
from tests.support.capsules import random_capsule
from tests.support.engines import TIMEOUT
from tests.support.observers import CountingObserver
from tests.support.requests import rows_for

TOLERANCE = 1e-4
FORMS: list[dict[str, Any]] = [
    {"variant": "addition"},
    {"variant": "addition", "length": 3, "layers": "latter-half"},
    {"variant": "prepending", "length": 2, "layers": "odd"},
    {"variant": "extraction", "layers": [2, 3]},
    {"variant": "projection", "length": 2},
    {"variant": "task-only", "layers": "first-half"},
    {"variant": "instance-only", "length": 2},
    {"variant": "instance-only", "layers": "input"},
]
# Words of one token, of several with a common beginning, and one that another begins with.
WORDS_OF = (
    {"yes": "w1", "no": "w2", "maybe": "w3"},
    {"yes": "w1", "no": "w1 w2", "maybe": "w1 w2 w3"},
    {"yes": "w5 w6", "no": "w5 w7", "maybe": "w8 w9"},
)


@pytest.fixture(
    params=["t5", "llama", "qwen2", "qwen3", "gemma3_text", "deberta-v2"], scope="module"
)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    return tiny_family(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture
async def engine(loaded: LoadedBackbone) -> AsyncIterator[Engine]:
    config = EngineConfig(
        threads=1, grace_s=5.0, max_batch_rows=64, max_padding=10.0, max_batch_tokens=10_000
    )
    engine = Engine(loaded, TorchExecutor(loaded.backbone), config, CountingObserver())
    await engine.start()
    yield engine
    await engine.stop()


def capsules(loaded: LoadedBackbone) -> list[Capsule]:
    in_words = loaded.info.family == "encoder-decoder"
    return [
        random_capsule(
            loaded.info,
            task=f"t{number}",
            labels=["yes", "no", "maybe"],
            max_length=40,
            seed=number,
            verbalizers=WORDS_OF[number % 3] if in_words else None,
            **form,
        )
        for number, form in enumerate(FORMS)
    ]


async def test_a_mixed_batch_answers_as_each_row_alone(engine: Engine, loaded) -> None:
    made = capsules(loaded)
    served = [engine.bank.add(capsule, version=1, digest="0" * 64) for capsule in made]
    chance = random.Random(0)
    texts = [words(chance.randint(1, 50), chance.randrange(200)) for _ in range(32)]
    rows = [rows_for(served[n % len(served)], text)[0] for n, text in enumerate(texts)]
    together = (await engine.classify(rows, timeout=TIMEOUT)).rows
    executor = TorchExecutor(loaded.backbone)
    for number, (text, answer) in enumerate(zip(texts, together, strict=True)):
        capsule = made[number % len(made)]
        (alone,) = predict(loaded, executor, capsule, [{"text": text}])
        assert isinstance(answer, RowAnswer)
        assert answer.probs == pytest.approx(alone.probs, abs=TOLERANCE)
        assert sum(answer.probs) == pytest.approx(1.0, abs=1e-5)
    # The comparison would mean little if texts and capsules made no difference.
    firsts = {round(answer.probs[0], 3) for answer in together if isinstance(answer, RowAnswer)}
    assert len(firsts) > 16
