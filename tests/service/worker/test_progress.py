import pytest

from capsules.training.events import EpochReport
from service.jobs.records import Progress
from service.worker.progress import Reporter


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def reporter(past: list[float], epochs: int = 4) -> tuple[Reporter, Time, list[Progress]]:
    told: list[Progress] = []
    time = Time()
    return Reporter(told.append, epochs, past, time), time, told


def finished(seconds: float) -> EpochReport:
    return EpochReport(
        epoch=1,
        train_loss=1,
        validation_loss=1,
        validation_accuracy=1,
        best=True,
        seconds=seconds,
    )


def test_it_tells_once_a_second() -> None:
    watcher, time, told = reporter([])
    for step in range(1, 13):
        time.now += 0.25
        watcher.step(1, step, 100, 0.5)
    assert [one.step for one in told] == [1, 5, 9]
    assert (told[0].epoch, told[0].epochs, told[0].steps, told[0].loss) == (1, 4, 100, 0.5)


def test_between_steps_it_tells_the_last_one_again() -> None:
    watcher, time, told = reporter([])
    watcher.pulse()
    assert told == []
    watcher.step(2, 7, 7, 0.5)
    watcher.pulse()
    assert len(told) == 1
    time.now += 1.0
    watcher.pulse()
    assert told == [told[0]] * 2


@pytest.mark.parametrize(
    ("past", "epoch", "step", "elapsed", "left"),
    [
        # Ten steps of a hundred took 2 s: 20 s an epoch, of four.
        ([], 1, 10, 2.0, 78.0),
        ([10.0, 20.0], 3, 50, 99.0, 22.5),
        ([10.0], 4, 100, 99.0, 0.0),
    ],
)
def test_the_time_left_is_that_of_the_epochs_so_far(past, epoch, step, elapsed, left) -> None:
    watcher, time, told = reporter(past)
    time.now += 5.0
    watcher.begin()
    time.now += elapsed
    watcher.step(epoch, step, 100, 0.5)
    assert told[0].seconds_left == pytest.approx(left)


def test_an_epoch_that_ends_here_counts_too() -> None:
    watcher, _, told = reporter([10.0])
    watcher.epoch(finished(20.0))
    watcher.step(3, 100, 100, 0.5)
    assert told[0].seconds_left == pytest.approx(15.0)


def test_what_it_hears_ends_the_epoch() -> None:
    def refuse(progress: Progress) -> None:
        raise KeyboardInterrupt

    watcher = Reporter(refuse, 4, [], Time())
    with pytest.raises(KeyboardInterrupt):
        watcher.step(1, 1, 1, 0.5)
