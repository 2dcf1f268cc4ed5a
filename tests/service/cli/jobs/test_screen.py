import io

import pytest
from rich.console import Console

from service.cli.jobs.replies import Event, Job, Progress
from service.cli.jobs.screen import Screen
from tests.support.job_replies import a_job, a_report, an_event

WHERE = {"epoch": 2, "epochs": 20, "step": 3, "steps": 9, "loss": 0.5, "seconds_left": 100.0}


@pytest.fixture
def console():
    return Console(file=io.StringIO(), force_terminal=True, width=200, no_color=True)


def a_screen(console: Console, **job: object) -> Screen:
    return Screen(Job.model_validate(a_job(**job)), console=console)


def written(screen: Screen) -> str:
    """All that was written to the terminal."""
    assert isinstance(screen.console.file, io.StringIO)
    return screen.console.file.getvalue()


def bar(screen: Screen) -> tuple[str, float, float | None, str]:
    """Description, how far it is, its end, and the time left."""
    (task,) = screen.progress.tasks
    return task.description, task.completed, task.total, task.fields.get("left", "")


def event(number: int, **changes: object) -> Event:
    return Event.model_validate(an_event(number, **changes))


def test_a_job_that_waits_has_a_place_in_line(console):
    screen = a_screen(console, status="queued", queue_position=3)
    assert bar(screen) == ("queued, number 3 in line", 0, None, "")


def test_the_bar_goes_over_all_steps_of_all_epochs(console):
    screen = a_screen(console, status="queued")
    screen.show(Progress.model_validate(WHERE))
    assert bar(screen) == ("epoch 2/20  step 3/9  loss 0.5000", 9 + 3, 20 * 9, "1 min 40 s left")


def test_it_begins_where_the_job_is(console):
    screen = a_screen(console, progress=WHERE, metrics=[a_report(1), a_report(2)])
    assert bar(screen)[:2] == ("epoch 2/20  step 3/9  loss 0.5000  accuracy 0.7500", 12)


def test_what_cannot_be_told_yet_is_left_out(console):
    screen = a_screen(console)
    screen.show(Progress.model_validate(WHERE | {"loss": None, "seconds_left": None}))
    assert bar(screen)[0] == "epoch 2/20  step 3/9"
    assert bar(screen)[3] == ""


def test_events_are_lines_and_the_best_accuracy_stays(console):
    screen = a_screen(console)
    with screen:
        screen.show(event(1, message="Epoch 1.", type="metrics", data=a_report(2)))
        worse = a_report(2, validation_accuracy=0.25)
        screen.show(event(2, message="Epoch 2.", type="metrics", data=worse))
    assert bar(screen)[0] == "running"
    screen.show(Progress.model_validate(WHERE))
    screen.show(event(3, type="metrics", data=a_report(4)))
    assert bar(screen)[0].endswith("accuracy 0.8750")
    screen.show(event(4, type="metrics", data=worse))
    assert bar(screen)[0].endswith("accuracy 0.8750")
    lines = [line for line in written(screen).splitlines() if "Epoch" in line]
    assert [line.rstrip()[-8:] for line in lines] == ["Epoch 1.", "Epoch 2."]


def test_a_job_that_goes_back_into_the_queue_is_shown_so(console):
    screen = a_screen(console, progress=WHERE)
    screen.show(event(1, level="warning", data={"status": "queued", "run": 2}))
    assert bar(screen)[0] == "queued"
    assert bar(screen)[3] == ""


def test_what_the_server_says_cannot_steer_the_terminal(console):
    screen = a_screen(console)
    with screen:
        screen.show(event(1, message="\x1b[2J[red]gone", data={"status": "\x1b[2J"}))
        screen.notice("\x1b[2J")
    assert "\x1b[2J" not in written(screen)
    assert r"\x1b[2J[red]gone" in written(screen)
