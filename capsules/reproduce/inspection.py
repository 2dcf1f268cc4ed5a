"""Looks into the capsules of a folder of runs, and keeps what is seen beside the committed runs."""

from collections import defaultdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from capsules.artefact.file import Capsule, read
from capsules.backbones.base import LoadedBackbone
from capsules.backbones.load import load
from capsules.errors import DataError, DataFault
from capsules.reproduce.attention import TITLES, draw_maps, tested
from capsules.reproduce.claims import CAPSULE
from capsules.reproduce.insight import Insight, inspect
from capsules.reproduce.journal import CAPSULES, read_rows, run_name
from capsules.reproduce.page import INSTANCE, home
from capsules.reproduce.splits import require
from capsules.reproduce.suite import choose

SUFFIX = "-insight.json"
INSIGHTS: TypeAdapter[list[Insight]] = TypeAdapter(list[Insight])


def write_inspection(
    runs: Path, data: Path, results: Path, images: Path, name: str, device: str = "auto"
) -> list[Path]:
    """Measure the first seed of each set that was trained with the mean and without it.

    Args:
        runs: the folder that `capsule reproduce` wrote, for its capsules.
        data: holds a folder for each set.
        results: has the committed runs in `NAME.jsonl`; the figures go to `NAME-insight.json`.
        images: where the attention maps go.
        name: of the committed runs that this folder is of.
        device: where the backbone runs.

    Returns:
        What was written.

    Raises:
        DataError: no set has both in the committed runs, or its rows cannot be used.
        BackboneError: the backbone cannot be had.
        ArtefactError: a capsule cannot be read.
        OSError: something cannot be written.
    """
    committed = results / f"{name}.jsonl"
    rows = read_rows(committed)
    seeds = shared_seeds({row.key for row in rows})
    if not seeds:
        raise DataError(
            f"{committed} has no set with runs of both {' and '.join(TITLES)} with one seed; "
            "record them first, or name others with --name.",
            code=DataFault.UNREADABLE_FILE,
            field="name",
        )
    loaded = load_of(rows[0].configuration.backbone.specification, device)
    images.mkdir(parents=True, exist_ok=True)
    found, written = [], []
    for task, seed in seeds.items():
        (chosen,) = choose(home(task), [task])
        source = require(chosen, data)
        capsules = {method: read_capsule(runs, task, method, seed) for method in TITLES}
        found.append(
            inspect(
                loaded,
                capsules[CAPSULE],
                capsules[INSTANCE],
                tested(source).examples,
                task=task,
                seed=seed,
            )
        )
        written.append(images / attention_image(name, task))
        draw_maps(source, loaded, capsules, written[-1])
    path = results / f"{name}{SUFFIX}"
    path.write_bytes(INSIGHTS.dump_json(found, indent=1) + b"\n")
    return [*written, path]


def read_insights(results: Path) -> dict[str, list[Insight]]:
    """What was seen, by the name of the runs.

    Raises:
        DataError: a file holds something else.
    """
    found = {}
    for path in sorted(results.glob(f"*{SUFFIX}")):
        try:
            found[path.name.removesuffix(SUFFIX)] = INSIGHTS.validate_json(path.read_bytes())
        except ValidationError as error:
            raise DataError(
                f"{path} is not what --inspect writes; remove it, or write it again.",
                code=DataFault.UNREADABLE_FILE,
            ) from error
    return found


def shared_seeds(keys: set[tuple[str, str, int]]) -> dict[str, int]:
    """The first seed that each set was run with by both methods."""
    seeds: dict[str, list[int]] = defaultdict(list)
    for task, method, seed in sorted(keys):
        if method == CAPSULE and all((task, one, seed) in keys for one in TITLES):
            seeds[task].append(seed)
    return {task: min(those) for task, those in seeds.items()}


def read_capsule(runs: Path, task: str, method: str, seed: int) -> Capsule:
    """A trained capsule of a folder of runs."""
    return read(runs / CAPSULES / f"{run_name((task, method, seed))}.safetensors")


def load_of(specification: str, device: str) -> LoadedBackbone:
    """The backbone as `capsule reproduce` trains on it."""
    return load(specification, device=device, dtype="float32")


def attention_image(name: str, task: str) -> str:
    """The file of an attention map."""
    return f"results-{name}-attention-{task}.png"
