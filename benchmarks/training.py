"""What a training step costs, in time and memory, beside the methods capsules are compared with.

Side by side, on the same backbone and the same batches of sentence pairs: a capsule, P-Tuning v2,
LoRA and a linear head. Then the same rows in batches of similar length and in random ones. Memory
is measured in a fresh process for each, since the peak of a process never falls.
"""

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random

import torch
from torch.nn import functional
from transformers.optimization import Adafactor

from benchmarks.context import Context
from benchmarks.errors import BenchmarkError
from benchmarks.result import Figure, Findings, at_least, figure, series
from benchmarks.sampling import difference, interleave, middle, ratio, seconds
from benchmarks.texts import WORDS
from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.baselines.registry import builder
from capsules.core import Encoding
from capsules.model import pad
from capsules.training.batches import length_bucketed
from capsules.training.config import TrainingConfig
from capsules.training.learner import Learner
from capsules.training.trainable import Trainable

QUESTION = "What does a training step cost in time and memory, beside other methods?"

CAPSULE = "capsule"
LINEAR_HEAD = "linear head"
RIVALS = {"P-Tuning v2": "p-tuning-v2", "LoRA": "lora"}
SIDES = (CAPSULE, *RIVALS, LINEAR_HEAD)

BUCKETED = "similar length"
RANDOM = "random"
GOAL = 1.4

LABELS = ("entailment", "not_entailment")
MAX_LENGTH = 256
# Words of a pair of the data set, used where it is not there: half have at most 41, 95 % at most 119.
PAIR_WORDS = (15, 41, 119)
MEBIBYTE = 2**20


def measure(context: Context) -> Findings:
    """Answer the question.

    Raises:
        BenchmarkError: the data set's file is malformed, or a step's process failed.
    """
    rows, rounds = (16, 2) if context.quick else (320, 20)
    batch_size = 4 if context.quick else 16
    loaded = load(context.backbone, device=context.device, dtype="float32")
    source, texts = pairs(context.data, rows)
    steps = {side: Stepper(loaded, side) for side in SIDES}
    longest = text_length(loaded, steps.values())
    encodings = loaded.tokeniser.encode(texts, longest)

    context.tell(f"steps: {rounds} rounds of {batch_size} rows")
    batches = length_bucketed(lengths(encodings), batch_size, seed=0, epoch=1)
    took = interleave(
        {side: partial(timed, step, encodings, batches) for side, step in steps.items()}, rounds
    )
    milliseconds = {side: [one * 1000 for one in values] for side, values in took.items()}

    context.tell(f"order: {rows} rows in batches of similar length and in random ones")
    orders = {BUCKETED: batches, RANDOM: shuffled(rows, batch_size)}
    epochs = interleave(
        {name: partial(whole, steps[CAPSULE], encodings, order) for name, order in orders.items()},
        max(rounds // 4, 1),
    )

    peaks = {}
    for side in SIDES:
        context.tell(f"memory: {side}")
        peaks[side] = peak_mebibytes(context, side, batch_size, longest)
    double = peak_mebibytes(context, CAPSULE, 2 * batch_size, longest)

    return Findings(
        options={
            "backbone": loaded.info.id,
            "device": str(loaded.backbone.device),
            "rows": rows,
            "batch_size": batch_size,
            "rounds": rounds,
            "texts": source,
            "memory_tokens": longest,
        },
        figures=(
            figure(
                f"{RANDOM} / {BUCKETED} batches, time of the same rows",
                "ratio",
                ratio(epochs[RANDOM], epochs[BUCKETED]),
                at_least(GOAL),
            ),
            *figures_of(milliseconds),
            *(
                figure(f"{side}: peak memory above the backbone", "MiB", middle([peaks[side]]))
                for side in SIDES
            ),
            figure("capsule: peak memory with twice the rows", "MiB", middle([double])),
        ),
        series=(
            *(series("step", side, "ms", values) for side, values in milliseconds.items()),
            *(series("epoch", name, "s", values) for name, values in epochs.items()),
        ),
        notes=(
            "A step is a forward pass, its gradients and one of Adafactor, on the same rows for "
            "all. A linear head needs no gradients inside the backbone, and in training its "
            "features are computed once and kept; here they are computed in each step.",
            f"Memory is that of one step on rows of {MAX_LENGTH} tokens, one measurement each.",
        ),
    )


def figures_of(took: dict[str, list[float]]) -> list[Figure]:
    """How many times as long as the capsule's each side's step takes."""
    others = [side for side in SIDES if side != CAPSULE]
    return [
        figure("capsule: a step", "ms", middle(took[CAPSULE])),
        *(
            figure(f"{side} / capsule: a step", "ratio", ratio(took[side], took[CAPSULE]))
            for side in others
        ),
        figure(
            "capsule: more than a linear head", "ms", difference(took[CAPSULE], took[LINEAR_HEAD])
        ),
    ]


class Stepper:
    """One side, ready to take steps."""

    def __init__(self, loaded: LoadedBackbone, side: str) -> None:
        self.loaded = loaded
        self.learner = learner(loaded, side)
        self.frozen = self.learner.fixed_features
        self.optimizer = Adafactor(
            self.learner.parameters(), lr=1e-3, scale_parameter=False, relative_step=False
        )

    def __call__(self, rows: Sequence[Encoding]) -> None:
        """One step on some rows, to its end."""
        device = self.loaded.backbone.device
        tokens = pad(rows, self.loaded.tokeniser.pad_id).to(device)
        with torch.set_grad_enabled(not self.frozen):
            features = self.learner.features(tokens)
        targets = torch.arange(len(rows), device=device) % len(LABELS)
        functional.cross_entropy(self.learner.score(features), targets).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def text_length(loaded: LoadedBackbone, steps: Iterable[Stepper]) -> int:
    """Most tokens of a text, the same for every side: all of them have to fit in beside it."""
    slots = max(step.learner.slots for step in steps)
    return min(MAX_LENGTH, loaded.backbone.max_tokens - slots)


def learner(loaded: LoadedBackbone, side: str) -> Learner:
    """What a side trains."""
    if side in RIVALS:
        return builder(RIVALS[side])(loaded, LABELS, 0)
    capsule = TrainingConfig(task="pairs")
    config = capsule if side == CAPSULE else capsule.model_copy(update={"variant": None})
    return Trainable(loaded, config, LABELS)


def timed(
    step: Callable[[Sequence[Encoding]], None],
    encodings: Sequence[Encoding],
    batches: Sequence[Sequence[int]],
    turn: int,
) -> float:
    """Seconds of a step on the batch of that round."""
    rows = [encodings[row] for row in batches[turn % len(batches)]]
    return seconds(lambda: step(rows))


def whole(
    step: Callable[[Sequence[Encoding]], None],
    encodings: Sequence[Encoding],
    batches: Sequence[Sequence[int]],
    _turn: int,
) -> float:
    """Seconds of a step on every batch."""
    return sum(timed(step, encodings, batches, turn) for turn in range(len(batches)))


def lengths(encodings: Sequence[Encoding]) -> list[int]:
    """Tokens of each text."""
    return [len(encoding.input_ids) for encoding in encodings]


def shuffled(rows: int, batch_size: int) -> list[list[int]]:
    """Batches that pay no regard to length."""
    order = Random(0).sample(range(rows), rows)
    return [order[start : start + batch_size] for start in range(0, rows, batch_size)]


def pairs(data: Path | None, count: int) -> tuple[str, list[str]]:
    """Sentence pairs as one text each, and where they come from.

    Raises:
        BenchmarkError: the file is malformed.
    """
    path = None if data is None else data / "rte" / "train.jsonl.gz"
    if path is None or not path.exists():
        random = Random(0)
        least, usual, most = PAIR_WORDS
        made_up = [
            " ".join(random.choices(WORDS, k=round(random.triangular(least, most, usual))))
            for _ in range(count)
        ]
        return f"made-up pairs of {least} to {most} words", made_up
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            parsed = [json.loads(line) for line in file]
        texts = [f"rte premise: {one['premise']} hypothesis: {one['hypothesis']}" for one in parsed]
    except (OSError, ValueError, KeyError) as error:
        raise BenchmarkError(f"{path} cannot be read: {error!r}.") from error
    return "train rows of rte", Random(0).sample(texts, count)


def peak_mebibytes(context: Context, side: str, rows: int, length: int) -> float:
    """Memory that one step of long rows takes above the loaded backbone.

    Raises:
        BenchmarkError: the process that takes it failed.
    """
    with get_context("spawn").Pool(1) as pool:
        try:
            return pool.apply(step_alone, (context.backbone, context.device, side, rows, length))
        except Exception as error:
            raise BenchmarkError(f"The step of {side} failed: {error}") from error


def step_alone(backbone: str, device: str, side: str, rows: int, length: int) -> float:
    """Run in a process of its own: mebibytes by which one step raises its peak."""
    loaded = load(backbone, device=device, dtype="float32")
    step = Stepper(loaded, side)
    row = Encoding(tuple([loaded.tokeniser.pad_id] * length), truncated=False)
    # One row first, so that what is set up once is not counted.
    step([row])
    if loaded.backbone.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        loaded_bytes = torch.cuda.memory_allocated()
        step([row] * rows)
        return (torch.cuda.max_memory_allocated() - loaded_bytes) / MEBIBYTE
    before = resident_mebibytes("VmRSS")
    # Loading has a higher peak than a small step, so the peak is counted anew.
    Path("/proc/self/clear_refs").write_text("5")
    step([row] * rows)
    return resident_mebibytes("VmHWM") - before


def resident_mebibytes(key: str) -> float:
    """This process's resident memory: `VmRSS` now, or `VmHWM` at its highest.

    Raises:
        BenchmarkError: the system does not tell.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return float(value.split()[0]) / 1024
    raise BenchmarkError(f"/proc/self/status has no {key}; measure memory on Linux.")
