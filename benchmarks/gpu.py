"""Models of full size on a GPU, with a thousand tasks, beside the bare forward pass.

Nothing is fetched: the models have published sizes and random weights, and the texts made-up words
of real lengths. Callers send single texts through the engine; every batch that it forms is kept and
run again, without capsules, so that what is compared is the same rows with the same padding.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, PreTrainedConfig

from benchmarks.context import Context
from benchmarks.errors import WrongMachineError
from benchmarks.in_process import InProcess, in_process, shipped_engine, spread
from benchmarks.random_capsules import MIXED_LABELS, fill_bank, label_name, random_capsules
from benchmarks.result import Figure, Findings, Goal, Series, at_least, figure, series
from benchmarks.sampling import middle, ratio, seconds
from benchmarks.texts import WORDS, load_texts
from capsules.backbones.base import BackboneInfo, LoadedBackbone
from capsules.backbones.device import resolve_device
from capsules.backbones.registry import backbone_class
from capsules.backbones.tokeniser import Tokeniser
from capsules.core import Reading, TokenBatch
from capsules.executors.base import Executor, Pass
from capsules.executors.torch import TorchExecutor
from capsules.injection import Prompts
from service.engine.records import RowRequest, Served

QUESTION = "How many requests a second does a GPU answer with a thousand tasks, beside bare passes?"

ENGINE = "engine, mixed tasks"
BARE = "bare passes, same batches"
GOAL = 0.97

END, PAD, UNKNOWN = "</s>", "<pad>", "<unk>"
MOST_TOKENS = 512

MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "T5-Base": (
        "t5",
        {
            "vocab_size": 32128,
            "d_model": 768,
            "d_kv": 64,
            "d_ff": 3072,
            "num_layers": 12,
            "num_heads": 12,
            "relative_attention_num_buckets": 32,
            "feed_forward_proj": "relu",
            "decoder_start_token_id": 0,
        },
    ),
    "Llama-3.2-1B": (
        "llama",
        {
            "vocab_size": 128256,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
        },
    ),
    "BERT of 205M": (
        "bert",
        {
            "vocab_size": 27648,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 14,
            "num_attention_heads": 16,
            "max_position_embeddings": 512,
        },
    ),
}
"""Model type and sizes, by name."""

TINY: Mapping[str, Mapping[str, Any]] = {
    "T5-Base": {"vocab_size": 512, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2}
    | {"num_heads": 4},
    "Llama-3.2-1B": {"vocab_size": 512, "hidden_size": 32, "intermediate_size": 48}
    | {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
    "BERT of 205M": {"vocab_size": 512, "hidden_size": 32, "intermediate_size": 48}
    | {"num_hidden_layers": 2, "num_attention_heads": 4},
}
"""What replaces these sizes in a quick run, in which models are not themselves."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        capsules: tasks of each model.
        requests: of one round, by the number of callers.
        rounds: of each.
        tiny: whether models are shrunk.
    """

    capsules: int
    requests: Mapping[int, int]
    rounds: int
    tiny: bool


FULL = Sizes(capsules=1024, requests={1: 100, 32: 1600, 128: 3200, 512: 6400}, rounds=5, tiny=False)
QUICK = Sizes(capsules=10, requests={1: 3, 4: 12}, rounds=2, tiny=True)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one number of callers.

    Attributes:
        rate: requests a second through the engine.
        bare_rate: texts a second of the same batches without capsules.
        latencies_ms: of each request.
        rows: of a batch, on average.
    """

    rate: float
    bare_rate: float
    latencies_ms: tuple[float, ...]
    rows: float

    def percentile(self, part: float) -> float:
        """Milliseconds that this part of the requests took at most, in %."""
        return float(np.percentile(self.latencies_ms, part))


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        WrongMachineError: there is no GPU, unless the run is a quick one.
        BenchmarkError: a row was not answered.
    """
    sizes = QUICK if context.quick else FULL
    device = resolve_device(context.device)
    if device.type != "cuda" and not context.quick:
        raise WrongMachineError(
            f"models of full size are measured on a GPU, and this is {device.type}; where there "
            "is one, run `make bench-gpu`."
        )
    texts = load_texts(max(sizes.requests.values()), None)
    figures: list[Figure] = []
    samples: list[Series] = []
    parameters = {}
    for name in MODELS:
        context.tell(f"building {name}")
        with set_up(name, device, sizes) as bench:
            parameters[name] = bench.parameters
            for callers, count in sizes.requests.items():
                context.tell(f"{name}, {callers} at a time: {sizes.rounds} rounds")
                rounds = bench.rounds(texts.texts[:count], callers, sizes.rounds)
                most = callers == max(sizes.requests)
                figures += figures_of(f"{name}, {callers} at a time", rounds, most=most)
                samples += series_of(f"{name}, {callers} at a time", rounds)
    return Findings(
        options={
            "device": str(device),
            "dtype": "bfloat16",
            "executor": TorchExecutor.__name__,
            "capsules": sizes.capsules,
            "labels": list(MIXED_LABELS),
            "requests": {str(callers): count for callers, count in sizes.requests.items()},
            "rounds": sizes.rounds,
            "texts": texts.source,
            **{f"parameters of {name}": count for name, count in parameters.items()},
        },
        figures=tuple(sorted(figures, key=lambda one: one.goal is None)),
        series=tuple(samples),
        notes=(
            "Weights and capsules are random, of published sizes; they cost what trained ones do. "
            "Each request holds one text, tokenised by words.",
            f"`{BARE}` are the batches that the engine formed in the same round, run one after the "
            "other by the same executor without capsules, and without tokenising, heads or "
            "replies. A capsule takes a position of its row, which they do not have.",
            *(
                ("A quick run shrinks the models: their names say what they stand for.",)
                * sizes.tiny
            ),
        ),
    )


def figures_of(case: str, rounds: Sequence[Round], *, most: bool) -> Iterator[Figure]:
    """What is made of the rounds of one number of callers.

    Args:
        case: which one.
        rounds: of it.
        most: whether there is none larger.
    """
    goal: Goal | None = at_least(GOAL) if most else None
    yield figure(
        f"{case}: texts a second, engine / bare",
        "ratio",
        ratio([one.rate for one in rounds], [one.bare_rate for one in rounds]),
        goal,
    )
    for part in (50, 95):
        each = middle([one.percentile(part) for one in rounds])
        yield figure(f"{case}: p{part} of the engine", "ms", each)
    yield figure(f"{case}: rows of a batch", "rows", middle([one.rows for one in rounds]))


def series_of(case: str, rounds: Sequence[Round]) -> Iterator[Series]:
    """What the rounds measured."""
    yield series(case, ENGINE, "requests/s", [one.rate for one in rounds])
    yield series(case, BARE, "requests/s", [one.bare_rate for one in rounds])
    for part in (50, 95):
        yield series(case, f"p{part}", "ms", [one.percentile(part) for one in rounds])


@dataclass
class RecordingExecutor(Executor):
    """Runs batches as another executor does, and keeps what they were made of.

    Attributes:
        inner: the other executor.
        batches: tokens and reading of each batch that ran.
    """

    inner: TorchExecutor
    batches: list[tuple[TokenBatch, Reading | None]] = field(default_factory=list)
    padding_free: ClassVar[bool] = TorchExecutor.padding_free

    def __post_init__(self) -> None:
        self.name = self.inner.name

    @property
    def device(self) -> torch.device:
        """The other executor's."""
        return self.inner.device

    def prepare(
        self,
        tokens: TokenBatch,
        prompts: Prompts,
        reading: Reading | None = None,
        *,
        alone: bool = True,
    ) -> Pass:
        """See :class:`capsules.executors.base.Executor`."""
        forward = self.inner.prepare(tokens, prompts, reading, alone=alone)

        def run() -> Tensor:
            self.batches.append((tokens, reading))
            return forward()

        return run


@dataclass(frozen=True, slots=True)
class Bench:
    """A model with its engine.

    Attributes:
        parameters: of the model.
        executor: the engine's.
        started: the engine.
        served: the capsules.
    """

    parameters: int
    executor: RecordingExecutor
    started: InProcess
    served: Sequence[Served]

    def rounds(self, texts: Sequence[str], callers: int, rounds: int) -> list[Round]:
        """Rounds of one number of callers, after one that does not count."""
        rows = spread(texts, self.served)
        return [self.round(rows, callers) for _ in range(-1, rounds)][1:]

    def round(self, rows: Sequence[RowRequest], callers: int) -> Round:
        """All rows through the engine, then its batches without capsules."""
        self.executor.batches.clear()
        sent = self.started.send(rows, callers)
        batches = list(self.executor.batches)
        took = seconds(lambda: self.bare(batches))
        return Round(
            rate=len(rows) / sent.seconds,
            bare_rate=len(rows) / took,
            latencies_ms=sent.latencies_ms,
            rows=len(rows) / len(batches),
        )

    def bare(self, batches: Sequence[tuple[TokenBatch, Reading | None]]) -> None:
        """Run batches without capsules, and read what each gives, as an engine has to."""
        for tokens, reading in batches:
            self.executor.inner.features(tokens, Prompts(), reading).cpu()


@contextmanager
def set_up(name: str, device: torch.device, sizes: Sizes) -> Iterator[Bench]:
    """Build a model, fill its bank and start its engine; the memory is given back at the end."""
    loaded = build(name, device, tiny=sizes.tiny)
    executor = RecordingExecutor(TorchExecutor(loaded.backbone))
    engine = shipped_engine(loaded, executor)
    served = fill_bank(engine.bank, random_capsules(loaded.info, sizes.capsules))
    with in_process(engine) as started:
        yield Bench(loaded.info.parameters, executor, started, served)
    torch.cuda.empty_cache()


def build(name: str, device: torch.device, *, tiny: bool) -> LoadedBackbone:
    """A model of random weights in bfloat16, with a tokeniser of words.

    Args:
        name: which of `MODELS`.
        device: where the weights are made.
        tiny: shrink it.
    """
    model_type, facts = MODELS[name]
    config = AutoConfig.for_model(model_type, **{**facts, **(TINY[name] if tiny else {})})
    tokeniser = word_tokeniser(config)
    adapter = backbone_class(model_type)
    options: dict[str, Any] = {"add_pooling_layer": False} if model_type == "bert" else {}
    factory: Any = AutoModelForSeq2SeqLM if model_type == "t5" else AutoModel
    torch.manual_seed(0)
    with device:
        model = factory.from_config(
            config, dtype=torch.bfloat16, attn_implementation="sdpa", **options
        )
    backbone = adapter(model)
    backbone.max_tokens = min(backbone.max_tokens, MOST_TOKENS)
    info = BackboneInfo(
        id=name,
        family=adapter.family,
        architecture=model_type,
        hidden_size=config.hidden_size,
        num_layers=len(backbone.layers),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        vocab_size=config.vocab_size,
        max_tokens=backbone.max_tokens,
        fingerprint=hashlib.sha256(name.encode()).hexdigest(),
        path=Path(name),
    )
    return LoadedBackbone(info=info, backbone=backbone, tokeniser=tokeniser)


def word_tokeniser(config: PreTrainedConfig) -> Tokeniser:
    """A tokeniser to which every word and every label is one token.

    Args:
        config: whose tokens for padding and for the end of a text it keeps to.
    """
    special = {PAD: config.pad_token_id or 0}
    if config.eos_token_id is not None:
        special[END] = config.eos_token_id
    free = (token for token in range(config.vocab_size) if token not in special.values())
    labels = [label_name(number) for number in range(max(MIXED_LABELS))]
    words = [UNKNOWN, *dict.fromkeys((*labels, *WORDS.split()))]
    vocabulary = {**special, **dict(zip(words, free, strict=False))}
    backend = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = WhitespaceSplit()
    return Tokeniser(backend, pad_id=special[PAD])
