"""Which tasks have a metric label of their own: those asked for most of late."""

from collections.abc import Callable

HALF_LIFE_S = 600.0
LEAD = 2.0


class Ranking:
    """Counts requests by task and gives the busiest tasks a label.

    A task's score is the number of its requests, each counting half as much after every
    `HALF_LIFE_S`. While there is room, a task gets its label with its first request. After that
    labels change hands in :meth:`rank` alone, and only to a task whose score is `LEAD` times that
    of the one that gives its label up: each change ends a time series, so two tasks that are about
    as busy must not take turns.

    Attributes:
        room: how many labels there are.
        labelled: the tasks that have one.
        scores: of every task asked for that may still exist.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.labelled: set[str] = set()
        self.scores: dict[str, float] = {}

    def count(self, task: str) -> bool:
        """Count one request for a task, and tell whether the task has a label."""
        self.scores[task] = self.scores.get(task, 0.0) + 1.0
        if len(self.labelled) < self.room:
            self.labelled.add(task)
        return task in self.labelled

    def rank(self, elapsed: float, known: Callable[[str], bool]) -> set[str]:
        """Let time pass, and hand labels on to busier tasks.

        Args:
            elapsed: seconds since the last call.
            known: whether a task still exists; one that does not is forgotten.

        Returns:
            The tasks that have lost their label.
        """
        faded = 0.5 ** (elapsed / HALF_LIFE_S)
        self.scores = {task: score * faded for task, score in self.scores.items() if known(task)}
        by_score = sorted(self.scores, key=self.scores.__getitem__, reverse=True)
        holders = [task for task in reversed(by_score) if task in self.labelled]
        rivals = [task for task in by_score if task not in self.labelled]
        free = self.room - len(holders)
        kept = {*holders, *rivals[:free]}
        for rival, holder in zip(rivals[free:], holders, strict=False):
            if self.scores[rival] <= LEAD * self.scores[holder]:
                break
            kept.remove(holder)
            kept.add(rival)
        lost = self.labelled - kept
        self.labelled = kept
        return lost
