"""The attention map of a set: the capsule beside a single soft prompt, on one of its texts."""

from pathlib import Path

from capsules.analysis.attention import attention
from capsules.analysis.figure import draw
from capsules.artefact.file import read
from capsules.backbones.base import LoadedBackbone
from capsules.core import Example
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
    text = shortest(source).inputs
    maps = {
        title: attention(loaded, read(journal.capsule((source.task.name, method, shared[0]))), text)
        for method, title in TITLES.items()
    }
    path = journal.folder / f"attention-{source.task.name}.png"
    draw(maps, path)
    return path


def shortest(source: Source) -> Example:
    """The test row with the fewest characters."""
    rows = source.validation if source.test is None else source.test
    return min(rows, key=lambda row: sum(map(len, row.inputs.values())))
