"""What not every installation has, imported only once it is needed."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from capsules.backbones.base import LoadedBackbone
from capsules.errors import OptionError
from capsules.reproduce.journal import Journal, unwritable
from capsules.reproduce.method import Method
from capsules.reproduce.splits import Source
from capsules.reproduce.summary import cells

INSTALL = "pip install 'capsule-server[research]'"

Present = Callable[[str], object]


def require(methods: Sequence[Method], *, plots: bool, present: Present = find_spec) -> None:
    """Refuse, before any work, what an installation lacks the libraries for.

    Args:
        methods: those that run.
        plots: whether plots are drawn.
        present: finds a library by its name, or gives None.

    Raises:
        OptionError: naming the library, how to get it and how to do without.
    """
    baselines = [one.name for one in methods if one.baseline]
    if baselines and present("peft") is None:
        raise OptionError(
            f"{', '.join(baselines)} need the library peft: {INSTALL}, or name other --methods.",
            field="methods",
        )
    if plots and present("matplotlib") is None:
        raise OptionError(
            f"Plots need the library matplotlib: {INSTALL}, or pass --no-plots.", field="plots"
        )


def draw(sources: Sequence[Source], loaded: LoadedBackbone, journal: Journal) -> None:
    """Draw what a folder of runs has: plots of all, and an attention map of each set.

    Args:
        sources: the sets to draw attention on.
        loaded: the backbone, which nothing else may run meanwhile.
        journal: has at least one run.

    Raises:
        TrainingError: the folder cannot be written to.
    """
    from capsules.reproduce import attention, plots

    try:
        plots.draw(cells(journal.rows), journal.folder)
        for source in sources:
            attention.draw_attention(source, loaded, journal)
    except OSError as error:
        raise unwritable(journal.folder, error) from error
