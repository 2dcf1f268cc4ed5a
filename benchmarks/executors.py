"""The ways to run the backbone, on the same batches of mixed tasks, variants and lengths.

What is timed is the executor alone, from padded tokens and gathered capsules to features: making a
pass ready, which packs the rows where padding is free, and running it. What 8-bit weights and
bfloat16 cost in answers is measured on the shipped capsules and their test data.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import torch
from pydantic import JsonValue

from benchmarks.children import NOTE, child
from benchmarks.context import Context
from benchmarks.exams import accuracy_figures, accuracy_series, exams
from benchmarks.in_process import engine_config, shipped_executor
from benchmarks.random_capsules import MIXED_LABELS, fill_bank, random_capsules
from benchmarks.result import Figure, Findings, Series, figure, series
from benchmarks.sampling import interleave, ratio, seconds
from benchmarks.texts import load_texts
from capsules.artefact.file import digest, parse
from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.core import Encoding
from capsules.executors.torch import TorchExecutor
from capsules.model import pad
from capsules.variants.registry import VARIANTS, variant
from service.engine.bank import Bank
from service.engine.executors import Choice, Quantization
from service.engine.records import Served

QUESTION = "How many texts a second does each executor take through the backbone?"

EAGER = "torch"
COMPILED = "torch, compiled"
BFLOAT16 = "torch, bfloat16"
PACKED = "onnxruntime, packed"
INT8 = "onnxruntime int8, packed"

ROWS = 32
ARRIVAL = f"{ROWS} rows, as they arrive"
SORTED = f"{ROWS} rows, sorted by length"
SINGLE = "1 row"
EVEN_ROWS, EVEN_TOKENS = 8, 64
EVEN = f"{EVEN_ROWS} rows of {EVEN_TOKENS} tokens"

CAPSULES = 64
MOST_TEST_ROWS = 500
FLAGS = Path("/proc/cpuinfo")
FAST_BFLOAT16 = ("amx_bf16", "avx512_bf16")
"""Instructions without which bfloat16 is no faster than float32."""


@dataclass(frozen=True, slots=True)
class How:
    """One way to run the backbone.

    Attributes:
        choice: of the executor.
        dtype: of the weights.
        quantization: of the products.
        compile: have torch compile the layers.
    """

    choice: Choice
    dtype: str = "float32"
    quantization: Quantization = "none"
    compile: bool = False

    @property
    def exact(self) -> bool:
        """Whether it computes in float32 throughout."""
        return self.dtype == "float32" and self.quantization == "none"


SIDES = {
    EAGER: How("torch"),
    COMPILED: How("torch", compile=True),
    BFLOAT16: How("torch", dtype="bfloat16"),
    PACKED: How("onnxruntime"),
    INT8: How("onnxruntime", quantization="int8"),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        rounds: of each case.
        batches: of one round, of several rows.
        singles: texts of one round that are run one by one.
        compile: whether torch compiles a side, which takes a minute.
        test_rows: most rows of a test set.
    """

    rounds: int
    batches: int
    singles: int
    compile: bool
    test_rows: int


FULL = Sizes(rounds=10, batches=8, singles=32, compile=True, test_rows=MOST_TEST_ROWS)
QUICK = Sizes(rounds=2, batches=2, singles=2, compile=False, test_rows=8)

Row = tuple[Encoding, int]
"""A text, and the number of its capsule."""

Batches = Sequence[Sequence[Row]]


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        BenchmarkError: a test set has other labels than its capsule.
    """
    sizes = QUICK if context.quick else FULL
    loaded = load(context.backbone, device="cpu")
    count = sizes.rounds * sizes.batches * ROWS
    texts = load_texts(count, context.data)
    cases = cases_of(loaded, texts.texts, sizes)
    sides, left_out = chosen(context, sizes)
    took: dict[str, dict[str, list[float]]] = {}
    with set_up(context, sides) as running:
        for case, rounds in cases.items():
            context.tell(f"{case}: {sizes.rounds} rounds")
            for side in running.values():
                side.take(rounds)
            work = {name: partial(run_round, side) for name, side in running.items()}
            took[case] = interleave(work, sizes.rounds, warm_up=2)
        every, not_held = exams(context.data, loaded.info.fingerprint, sizes.test_rows)
        asked = [name for name in running if name == EAGER or not SIDES[name].exact]
        answered = {}
        if every:
            context.tell("accuracy of the shipped capsules")
            answered = {
                name: [running[name].answers(one.artefact, one.texts) for one in every]
                for name in asked
            }
    return Findings(
        options={
            "backbone": loaded.info.id,
            "capsules": CAPSULES,
            "variants": list(VARIANTS),
            "labels": list(MIXED_LABELS),
            "rounds": sizes.rounds,
            "texts": texts.source,
            **shapes(cases),
            **{f"test rows of {one.task}": len(one.texts) for one in every},
        },
        figures=(
            *speed_figures(took),
            *(
                one
                for name, answers in answered.items()
                if name != EAGER
                for one in accuracy_figures(every, name, answers, answered[EAGER])
            ),
        ),
        series=(*speed_series(cases, took), *accuracy_series(every, answered)),
        notes=(
            NOTE,
            f"Every executor runs the same batches. `{SORTED}` are the texts of one round of "
            f"`{ARRIVAL}`, {sizes.batches * ROWS} of them, sorted as a whole: as little padding as "
            "there can be.",
            *left_out,
            *not_held,
        ),
    )


def chosen(context: Context, sizes: Sizes) -> tuple[dict[str, How], list[str]]:
    """The executors that can be measured here, and why the others cannot."""
    sides = dict(SIDES)
    notes = []

    def leave_out(name: str, reason: str) -> None:
        del sides[name]
        notes.append(f"`{name}` is left out: {reason}.")

    if not sizes.compile:
        leave_out(COMPILED, "compiling takes longer than a quick run")
    elif shutil.which(os.environ.get("CXX", "g++")) is None:
        leave_out(COMPILED, "there is no C++ compiler here, which torch needs for that")
    if not has_fast_bfloat16(FLAGS):
        leave_out(BFLOAT16, f"this processor has none of {', '.join(FAST_BFLOAT16)}")
    if context.executor == "torch":
        for name in (PACKED, INT8):
            leave_out(name, "the executor was chosen to be torch")
    return sides, notes


def has_fast_bfloat16(flags: Path) -> bool:
    """Whether the processor multiplies in bfloat16.

    Args:
        flags: where Linux tells what it can do; it cannot elsewhere.
    """
    try:
        told = flags.read_text(encoding="utf-8")
    except OSError:
        return False
    return any(name in told for name in FAST_BFLOAT16)


def cases_of(
    loaded: LoadedBackbone, texts: Sequence[str], sizes: Sizes
) -> dict[str, list[Batches]]:
    """The batches of each round, by case."""
    encodings = loaded.tokeniser.encode(texts, loaded.info.max_tokens - most_slots())
    rows = [(encoding, number % CAPSULES) for number, encoding in enumerate(encodings)]
    parts = cut(rows, sizes.batches * ROWS)
    random = Random(0)
    return {
        ARRIVAL: [cut(part, ROWS) for part in parts],
        SORTED: [cut(sorted(part, key=tokens), ROWS) for part in parts],
        SINGLE: [cut(part[: sizes.singles], 1) for part in parts],
        EVEN: [
            [even_batch(loaded, random) for _ in range(sizes.batches)] for _ in range(sizes.rounds)
        ],
    }


def most_slots() -> int:
    """Positions that the longest of the capsules takes."""
    return max(variant(name).slots(1) for name in VARIANTS)


def tokens(row: Row) -> int:
    """Tokens of a row's text."""
    return len(row[0].input_ids)


def cut(rows: Sequence[Row], size: int) -> list[Sequence[Row]]:
    """Parts of a size, the last one perhaps smaller."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def even_batch(loaded: LoadedBackbone, random: Random) -> list[Row]:
    """Rows of random tokens, all of one length."""
    length = min(EVEN_TOKENS, loaded.info.max_tokens - most_slots())
    return [
        (
            Encoding(
                tuple(random.randrange(loaded.info.vocab_size) for _ in range(length)),
                truncated=False,
            ),
            random.randrange(CAPSULES),
        )
        for _ in range(EVEN_ROWS)
    ]


def shapes(cases: Mapping[str, Sequence[Batches]]) -> dict[str, JsonValue]:
    """How much of each case's batches is padding, where they are padded."""
    found: dict[str, JsonValue] = {}
    for case, rounds in cases.items():
        batches = [batch for one in rounds for batch in one]
        padded = sum(len(batch) * max(map(tokens, batch)) for batch in batches)
        real = sum(tokens(row) for batch in batches for row in batch)
        found[f"padded / real tokens, {case}"] = round(padded / real, 2)
    return found


class Side:
    """One executor with its capsules."""

    def __init__(self, backbone: str, how: How) -> None:
        """Load everything.

        Args:
            backbone: as the server's setting.
            how: to run it.
        """
        self.loaded = load(backbone, device="cpu", dtype=how.dtype)
        self.executor = (
            TorchExecutor(self.loaded.backbone, compile_layers=True)
            if how.compile
            else shipped_executor(self.loaded, backbone, how.choice, how.quantization)
        )
        threads = engine_config(self.executor).threads
        if threads is not None:
            torch.set_num_threads(threads)
        # One more than there are, for a shipped one.
        self.bank = Bank(self.loaded, self.executor.device, slots=CAPSULES + 1)
        capsules = random_capsules(self.loaded.info, CAPSULES, variants=list(VARIANTS))
        self.served: Sequence[Served] = fill_bank(self.bank, capsules)
        self.bank.pin(self.served)
        self.rounds: Sequence[Batches] = ()

    def take(self, rounds: Sequence[Batches]) -> None:
        """Be given the batches of a case, so that they need not be sent when it is measured."""
        self.rounds = rounds

    def run(self, turn: int) -> float:
        """Seconds of all batches of a round."""
        return sum(self.batch(batch) for batch in self.rounds[turn])

    def batch(self, batch: Sequence[Row]) -> float:
        """Seconds of one batch."""
        padded = pad([encoding for encoding, _ in batch], self.loaded.tokeniser.pad_id)
        with self.bank.gather([self.served[number] for _, number in batch]) as gathered:
            return seconds(
                lambda: self.executor.features(padded, gathered.prompts, gathered.heads.reading)
            )

    def answers(self, artefact: bytes, texts: Sequence[str]) -> list[tuple[float, ...]]:
        """The probabilities that a capsule gives to texts.

        Args:
            artefact: the capsule's file.
            texts: to classify.
        """
        served = self.bank.add(parse(artefact), version=1, digest=digest(artefact))
        self.bank.pin([served])
        rendered = [served.template.render({"text": text}) for text in texts]
        encodings = self.loaded.tokeniser.encode(rendered, served.max_tokens)
        found: list[tuple[float, ...]] = []
        for start in range(0, len(encodings), ROWS):
            part = encodings[start : start + ROWS]
            padded = pad(part, self.loaded.tokeniser.pad_id)
            with self.bank.gather([served] * len(part)) as gathered:
                features = self.executor.features(padded, gathered.prompts, gathered.heads.reading)
                found += gathered.heads.probabilities(features)
        self.bank.unpin([served])
        self.bank.remove(served)
        return found


def run_round(side: Side, turn: int) -> float:
    """Seconds of a round of one side."""
    return side.run(turn)


@contextmanager
def set_up(context: Context, sides: Mapping[str, How]) -> Iterator[dict[str, Side]]:
    """Every side in a process of its own."""
    with ExitStack() as stack:
        running = {}
        for name, how in sides.items():
            context.tell(f"starting {name}")
            running[name] = stack.enter_context(child(Side, context.backbone, how))
        yield running


def speed_figures(took: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[Figure]:
    """How much faster each executor is than eager torch, on the same batches and on better ones."""
    for case, sides in took.items():
        for name, own in sides.items():
            if name != EAGER:
                yield figure(
                    f"{case}: texts a second, {name} / {EAGER}", "ratio", ratio(sides[EAGER], own)
                )
    for name in (PACKED, INT8):
        if name in took[ARRIVAL]:
            yield figure(
                f"{name} as they arrive / {EAGER} sorted by length",
                "ratio",
                ratio(took[SORTED][EAGER], took[ARRIVAL][name]),
            )


def speed_series(
    cases: Mapping[str, Sequence[Batches]], took: Mapping[str, Mapping[str, Sequence[float]]]
) -> Iterator[Series]:
    """Texts a second, and milliseconds a batch."""
    for case, sides in took.items():
        batches = cases[case]
        for name, own in sides.items():
            rates = [sum(map(len, batches[turn])) / spent for turn, spent in enumerate(own)]
            each = [spent * 1000 / len(batches[turn]) for turn, spent in enumerate(own)]
            yield series(case, name, "texts/s", rates)
            yield series(case, name, "ms/batch", each)
