"""What is compared without HTTP, each library in a process of its own.

So that no one's threads and settings are another's: torch's number of threads, for one, is that of
a whole process.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.managers import BaseManager
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from benchmarks.in_process import InProcess, shipped_engine, shipped_executor, spread
from benchmarks.random_capsules import fill_bank, random_capsules
from benchmarks.sampling import seconds
from capsules.backbones.load import load
from capsules.core import Encoding
from capsules.model import pad
from service.engine.executors import Choice

ROWS = 32
"""Of a batch."""

ADAPTERS = 8
RANK = 8
OTHER_LABELS = 20
SEED = 0

Ids = Sequence[int]
"""Token ids of one text, special ones included."""


class Transformers:
    """The pipeline, and PEFT's LoRA, on a model with one head."""

    def __init__(self, folder: Path) -> None:
        """Load everything.

        Args:
            folder: of the model.
        """
        self.folder = folder
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.pipeline = pipeline("text-classification", model=str(folder), device="cpu")
        self.names = tuple(f"task-{number}" for number in range(ADAPTERS))
        self.base = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        self.lora = lora(folder, self.names)

    def pipe(self, texts: Sequence[str], batch_size: int) -> float:
        """Seconds that the pipeline takes for texts in arrival order."""
        return seconds(lambda: self.pipeline(list(texts), batch_size=batch_size, truncation=True))

    @torch.inference_mode()
    def scores(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """The probability of each label, for each text alone: what every rival must answer."""
        names = self.base.config.id2label
        rows = [
            self.base(**self.tokenizer(text, truncation=True, return_tensors="pt")).logits
            for text in texts
        ]
        return [
            {names[label]: score for label, score in enumerate(row[0].softmax(-1).tolist())}
            for row in rows
        ]

    @torch.inference_mode()
    def mixed_arrival(self, texts: Sequence[str]) -> float:
        """Seconds of PEFT's mixed batches, in arrival order, from text to probabilities."""
        started = time.perf_counter()
        for at in range(0, len(texts), ROWS):
            part = list(texts[at : at + ROWS])
            tokens = self.tokenizer(part, padding=True, truncation=True, return_tensors="pt")
            self.mixed(**tokens).softmax(-1).tolist()
        return time.perf_counter() - started

    def mixed_batches(self, batches: Sequence[Sequence[Ids]]) -> float:
        """Seconds of PEFT's mixed batches that are padded already, to probabilities."""
        return self.batches(batches, self.mixed)

    def base_batches(self, batches: Sequence[Sequence[Ids]]) -> float:
        """Seconds of the same batches on the model without LoRA."""
        return self.batches(batches, lambda **tokens: self.base(**tokens).logits)

    @torch.inference_mode()
    def batches(self, batches: Sequence[Sequence[Ids]], forward: Callable[..., Tensor]) -> float:
        """Seconds of padded batches through a model."""
        padded = [
            self.tokenizer.pad({"input_ids": [list(row) for row in batch]}, return_tensors="pt")
            for batch in batches
        ]
        started = time.perf_counter()
        for tokens in padded:
            forward(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).softmax(
                -1
            ).tolist()
        return time.perf_counter() - started

    def mixed(self, **tokens: Tensor) -> Tensor:
        """Scores of one batch whose rows have the adapters in turn, [B, labels]."""
        rows = len(tokens["input_ids"])
        adapters = [self.names[row % ADAPTERS] for row in range(rows)]
        scores: Tensor = self.lora(**tokens, adapter_names=adapters).logits
        return scores

    def different_heads(self) -> str:
        """What a batch comes to whose adapters have heads of different sizes: the error, or none."""
        names = self.names[:2]
        model = lora(self.folder, names)
        heads = model.get_submodule("base_model.model.classifier.modules_to_save")
        heads.set_submodule(names[1], torch.nn.Linear(self.base.config.hidden_size, OTHER_LABELS))
        tokens = self.tokenizer(["one", "two"], padding=True, return_tensors="pt")
        try:
            with torch.inference_mode():
                model(**tokens, adapter_names=list(names))
        except (RuntimeError, ValueError, IndexError) as error:
            return f"{type(error).__name__}: {error}"
        return ""


def lora(folder: Path, names: Sequence[str]) -> PeftModel:
    """The model with a random LoRA and a head of its own for each name."""
    config = LoraConfig(task_type=TaskType.SEQ_CLS, r=RANK, lora_alpha=2 * RANK)
    base = AutoModelForSequenceClassification.from_pretrained(folder)
    model = get_peft_model(base, config, adapter_name=names[0])
    for name in names[1:]:
        model.add_adapter(name, config)
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        # They start as zeros, which a trained one is not.
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.02, generator=generator)
    return model.eval()


class Ours:
    """Our engine, with capsules of different label counts, and our executor by itself."""

    def __init__(self, backbone: str, device: str, executor: Choice, capsules: int) -> None:
        """Start the engine.

        Args:
            backbone: as the server's setting.
            device: likewise.
            executor: likewise.
            capsules: how many tasks there are.
        """
        loaded, second = (load(backbone, device=device) for _ in range(2))
        self.tokeniser = loaded.tokeniser
        # An engine's executor is its model thread's alone.
        self.executor, inner = (
            shipped_executor(one, backbone, executor) for one in (second, loaded)
        )
        engine = shipped_engine(loaded, inner)
        self.bank = engine.bank
        self.served = fill_bank(self.bank, random_capsules(loaded.info, capsules))
        self.engine = InProcess(engine)

    def name(self) -> str:
        """What the executor is called."""
        return self.executor.name

    def rate(self, texts: Sequence[str], concurrency: int) -> float:
        """Seconds of texts through the engine, one a request, from so many callers."""
        return self.engine.send(spread(texts, self.served), concurrency).seconds

    def tokenise(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """The token ids of texts, at most so many."""
        return [list(one.input_ids) for one in self.tokeniser.encode(texts, most)]

    def mixed_batches(self, batches: Sequence[Sequence[Ids]]) -> float:
        """Seconds of batches of mixed tasks that are padded already, to probabilities."""
        padded = [
            pad([Encoding(tuple(row), truncated=False) for row in batch], self.tokeniser.pad_id)
            for batch in batches
        ]
        tasks = self.served[:ADAPTERS]
        self.bank.pin(tasks)
        try:
            started = time.perf_counter()
            for tokens in padded:
                capsules = [tasks[row % len(tasks)] for row in range(len(tokens.input_ids))]
                with self.bank.gather(capsules) as gathered:
                    features = self.executor.features(
                        tokens, gathered.prompts, gathered.heads.reading
                    )
                    gathered.heads.probabilities(features)
            return time.perf_counter() - started
        finally:
            self.bank.unpin(tasks)

    def stop(self) -> None:
        """End the engine."""
        self.engine.stop()


class TransformersProcess(BaseManager):
    """A process that holds a :class:`Transformers`."""


class OurProcess(BaseManager):
    """A process that holds an :class:`Ours`."""


TransformersProcess.register("Transformers", Transformers)
OurProcess.register("Ours", Ours)


@contextmanager
def transformers_side(folder: Path) -> Iterator[Transformers]:
    """A :class:`Transformers` in a process of its own; calls of its methods go there."""
    with TransformersProcess(ctx=get_context("spawn")) as process:
        yield process.Transformers(folder)  # type: ignore[attr-defined]


@contextmanager
def our_side(backbone: str, device: str, executor: Choice, capsules: int) -> Iterator[Ours]:
    """An :class:`Ours` in a process of its own; calls of its methods go there."""
    with OurProcess(ctx=get_context("spawn")) as process:
        ours: Ours = process.Ours(backbone, device, executor, capsules)  # type: ignore[attr-defined]
        try:
            yield ours
        finally:
            ours.stop()
