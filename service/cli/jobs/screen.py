"""Shows a job on a terminal: its events, and below them a bar."""

from rich.console import Console
from rich.progress import ProgressColumn, Task
from rich.text import Text

from capsules.cli.output import printable
from capsules.cli.progress import Bar
from service.cli.jobs.following import Happening
from service.cli.jobs.replies import Event, Job, Progress
from service.cli.jobs.times import span, wall_clock

STYLES = {"warning": "yellow", "error": "red"}


class TimeLeft(ProgressColumn):
    """The time that is left, as the server reckons it."""

    def render(self, task: Task) -> Text:
        """What the bar's field `left` says."""
        return Text(task.fields.get("left", ""))


class Screen(Bar):
    """Follows a job: a bar over all its steps, and a line for each event."""

    def __init__(self, job: Job, *, console: Console | None = None) -> None:
        super().__init__(waiting(job), console=console, clocks=(TimeLeft(),))
        self.accuracy = job.accuracy
        self.where: Progress | None = None
        if job.progress is not None and not job.ended:
            self.move(job.progress)

    def show(self, happening: Happening) -> None:
        """Show what happened."""
        if isinstance(happening, Progress):
            self.move(happening)
        else:
            self.tell(happening)

    def move(self, progress: Progress) -> None:
        """Move on to where the job is. Early stopping may end it before the end of the bar."""
        self.where = progress
        parts = [
            f"epoch {progress.epoch}/{progress.epochs}",
            f"step {progress.step}/{progress.steps}",
        ]
        if progress.loss is not None:
            parts.append(f"loss {progress.loss:.4f}")
        if self.accuracy is not None:
            parts.append(f"accuracy {self.accuracy:.4f}")
        left = progress.seconds_left
        self.progress.update(
            self.task,
            description="  ".join(parts),
            left="" if left is None else f"{span(left)} left",
        )
        self.advance(
            (progress.epoch - 1) * progress.steps + progress.step,
            progress.epochs * progress.steps,
        )

    def tell(self, event: Event) -> None:
        """Write an event above the bar."""
        told = f"{wall_clock(event.created_at)}  {printable(event.message)}"
        self.console.print(Text(told, style=STYLES.get(event.level, "")))
        if event.type == "metrics":
            self.accuracy = max(self.accuracy or 0.0, event.data.get("validation_accuracy", 0.0))
            if self.where is not None:
                self.move(self.where)
        status = event.data.get("status")
        if status is not None:
            self.progress.update(self.task, description=printable(str(status)), left="")

    def notice(self, message: str) -> None:
        """Write something of our own above the bar."""
        self.console.print(Text(printable(message), style="yellow"))


def waiting(job: Job) -> str:
    """Where a job is that is not being trained."""
    if job.queue_position is None:
        return job.status
    return f"{job.status}, number {job.queue_position} in line"
