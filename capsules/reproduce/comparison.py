"""All runs of a comparison, one after the other."""

from collections.abc import Sequence

from capsules.backbones.base import LoadedBackbone
from capsules.errors import CapsuleError, TrainingFault
from capsules.reproduce.experiment import Experiment, conduct
from capsules.reproduce.journal import Journal
from capsules.reproduce.observer import Observer
from capsules.reproduce.record import Skip

# After these no other run can do better.
FATAL = frozenset({TrainingFault.UNWRITABLE_OUTPUT, TrainingFault.CANCELLED})


def compare(
    experiments: Sequence[Experiment],
    loaded: LoadedBackbone,
    journal: Journal,
    observer: Observer,
) -> list[Skip]:
    """Make every run that the journal does not have yet.

    Whatever is wrong with the rows or the folder is found before the first of them. A run that
    fails costs the others nothing.

    Returns:
        The runs that failed.

    Raises:
        DataError: rows cannot be divided.
        OptionError: the journal has runs of another kind.
        TrainingError: the journal cannot be written.
    """
    waiting = pending(experiments, journal)
    observer.plan(len(experiments), len(experiments) - len(waiting))
    failed: list[Skip] = []
    for experiment in waiting:
        try:
            row = conduct(experiment, loaded, journal, observer)
        except CapsuleError as error:
            if error.code in FATAL:
                raise
            task, method, seed = experiment.key
            failed.append(Skip(task=task, method=method, seed=seed, reason=error.message))
            observer.skipped(failed[-1])
        else:
            observer.finished(row)
    return failed


def pending(experiments: Sequence[Experiment], journal: Journal) -> list[Experiment]:
    """The runs that are not finished.

    Raises:
        DataError: rows cannot be divided.
        OptionError: the journal has runs of another kind.
    """
    waiting = []
    for experiment in experiments:
        journal.require_rates(experiment.method.name, experiment.rates)
        splits = experiment.source.splits(experiment.seed)
        if journal.find(experiment.key, experiment.identity(journal, splits)) is None:
            waiting.append(experiment)
    return waiting
