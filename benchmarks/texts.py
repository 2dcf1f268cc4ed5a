"""Texts of real lengths."""

import gzip
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.errors import BenchmarkError
from benchmarks.machine import ROOT

VARIABLE = "CAPSULE_BENCH_DATA"
DEFAULT_FOLDER = ROOT.parent / "shared" / "data"
DATASETS = ("banking77", "clinc150", "sst2", "trec")
SPLIT = "test.jsonl.gz"

# Of the data sets above: half of the texts have at most 10 words, 95 % at most 29.
MEDIAN_WORDS = 10
P95_WORDS = 29
MOST_WORDS = 60
WORDS = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from "
    "or had an they which one you were all her she there would their we him been has when who "
    "will no more if out so up said what its about than into them can only other time new some "
    "could these two may first then do any like my now over such our man me even most made after "
    "also did many off before must well back through years much where your way down should "
    "because long each just state those people too mr how little good world make very year still "
    "see own work men day get here between both life being under three never know same last "
    "another while us might great go come since against right came take used himself few house "
    "american use place during high without again home around small however found part account "
    "card money transfer bank question answer movie film city country book music weather flight"
)


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts, and where they come from."""

    source: str
    texts: tuple[str, ...]


def data_folder(option: str | None, environment: Mapping[str, str]) -> Path | None:
    """The folder of labelled data sets: the option's, the environment's, or the usual one.

    Returns:
        None where none is named and the usual one is not there.

    Raises:
        BenchmarkError: the folder that is named lacks a data set.
    """
    named = option or environment.get(VARIABLE)
    folder = DEFAULT_FOLDER if named is None else Path(named)
    missing = [name for name in DATASETS if not (folder / name / SPLIT).exists()]
    if not missing:
        return folder
    if named is None:
        return None
    raise BenchmarkError(
        f"{folder} has no {missing[0]}/{SPLIT}; name another folder with --data or {VARIABLE}, or "
        "none to use made-up texts of like lengths."
    )


def load_texts(count: int, folder: Path | None, *, seed: int = 0) -> Texts:
    """Texts in an order that depends on the seed alone.

    Args:
        count: how many.
        folder: of the data sets; None makes texts up, whose lengths are distributed alike.
        seed: which of them.
    """
    random = Random(seed)
    if folder is None:
        made_up = tuple(make_text(random) for _ in range(count))
        return Texts(
            source=f"made-up words, {MEDIAN_WORDS} a text in the median and {P95_WORDS} at the "
            "95th percentile",
            texts=made_up,
        )
    texts = [text for name in DATASETS for text in read_texts(folder / name / SPLIT)]
    if count > len(texts):
        raise BenchmarkError(f"{folder} has {len(texts)} texts, fewer than the {count} needed.")
    return Texts(
        source=f"test texts of {', '.join(DATASETS)}, shuffled together",
        texts=tuple(random.sample(texts, count)),
    )


def read_texts(path: Path) -> list[str]:
    """The texts of one file of gzipped JSON lines."""
    return [text for text, _ in read_rows(path)]


def read_rows(path: Path) -> list[tuple[str, str]]:
    """The texts of such a file, each with its label."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [(row["text"], row["label"]) for row in map(json.loads, lines)]


def make_text(random: Random) -> str:
    """Common words, log-normally many."""
    deviation = math.log(P95_WORDS / MEDIAN_WORDS) / 1.645
    words = round(random.lognormvariate(math.log(MEDIAN_WORDS), deviation))
    return " ".join(random.choices(WORDS.split(), k=min(max(words, 1), MOST_WORDS)))
