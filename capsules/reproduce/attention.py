"""The attention map of a set: the capsule beside a single soft prompt, on one of its texts."""

from collections.abc import Mapping
from pathlib import Path

from capsules.analysis.attention import attention
from capsules.analysis.figure import draw
from capsules.artefact.file import Capsule, read
from capsules.backbones.base import LoadedBackbone
from capsules.core import Example
from capsules.data.base import Dataset
from capsules.reproduce.journal import Journal
from capsules.reproduce.splits import Source

# Method to what the map calls it.
TITLES = {"capsule": "capsule", "task-only": "single soft prompt"}


def draw_attention(source: Source, loaded: LoadedBackbone, journal: Journal) -> Path | None:
    """Draw how a text and what stands in front of it attend to each other.

    Args:
        source: the set; the map is of its shortest test text, which leaves the tokens readable.
        loaded: the backbone, which nothing else may run meanwhile.
        journal: has the trained capsules.

    Returns:
        The picture; None where no seed was run with both methods.

    Raises:
        OSError: it cannot be written.
    """
    seeds = [
        {seed for task, one, seed in journal.keys if (task, one) == (source.task.name, method)}
        for method in TITLES
    ]
    shared = sorted(set.intersection(*seeds))
    if not shared:
        return None
    capsules = {
        method: read(journal.capsule((source.task.name, method, shared[0]))) for method in TITLES
    }
    path = journal.folder / f"attention-{source.task.name}.png"
    draw_maps(source, loaded, capsules, path)
    return path


def draw_maps(
    source: Source, loaded: LoadedBackbone, capsules: Mapping[str, Capsule], path: Path
) -> None:
    """Draw the maps of trained capsules, by method, on the set's shortest test text.

    Raises:
        OSError: they cannot be written.
    """
    text = shortest(source).inputs
    draw({TITLES[name]: attention(loaded, one, text) for name, one in capsules.items()}, path)


def shortest(source: Source) -> Example:
    """The test row with the fewest characters."""
    return min(tested(source), key=lambda row: sum(map(len, row.inputs.values())))


def tested(source: Source) -> Dataset:
    """The rows that nothing was chosen by."""
    return source.validation if source.test is None else source.test
