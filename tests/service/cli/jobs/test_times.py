import time

import pytest

from service.cli.jobs.times import moment, span, wall_clock


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (100, "1 min 40 s"),
        (600, "10 min"),
        (659, "10 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (36_500, "10 h"),
        (86_400, "1 d"),
        (1e7, "115 d"),
    ],
)
def test_spans_are_in_their_largest_unit(seconds, told):
    assert span(seconds) == told


def test_moments_are_in_utc():
    assert moment(1_800_000_000) == "2027-01-15T08:00:00Z"
    assert moment(None) is None


def test_the_clock_is_the_one_on_the_wall(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert wall_clock(1_800_000_000) == "17:00:00"
    finally:
        monkeypatch.undo()
        time.tzset()
