import random

import pytest

from service.ranking import HALF_LIFE_S, LEAD, Ranking


def ranking(room: int, **requests: int) -> Ranking:
    """One with so many requests of each task, in that order."""
    found = Ranking(room)
    for task, count in requests.items():
        for _ in range(count):
            found.count(task)
    return found


def everyone(task: str) -> bool:
    return True


def test_there_is_a_label_while_there_is_room() -> None:
    found = Ranking(2)
    assert [found.count(task) for task in ("a", "b", "c", "a")] == [True, True, False, True]
    assert found.scores == {"a": 2, "b": 1, "c": 1}


def test_the_busiest_take_the_labels_of_the_least_busy() -> None:
    found = ranking(3, a=1, b=9, c=3, d=20, e=5)
    assert found.rank(0.0, everyone) == {"a"}
    assert found.labelled == {"b", "c", "d"}


@pytest.mark.parametrize(("requests", "lost"), [(2 * int(LEAD), set()), (2 * int(LEAD) + 1, {"a"})])
def test_it_takes_a_clear_lead(requests: int, lost: set[str]) -> None:
    assert ranking(1, a=2, b=requests).rank(0.0, everyone) == lost


def test_a_request_counts_half_after_a_while() -> None:
    found = ranking(1, a=8, b=4)
    found.rank(HALF_LIFE_S, everyone)
    assert found.scores == {"a": 4, "b": 2}
    found.rank(2 * HALF_LIFE_S, everyone)
    assert found.scores == {"a": 1, "b": 0.5}


def test_who_was_busy_once_gives_way_in_time() -> None:
    found = ranking(1, a=1000, b=1)
    for _ in range(20):
        found.count("b")
        if found.rank(HALF_LIFE_S, everyone):
            break
    assert found.labelled == {"b"}


def test_equals_do_not_take_turns() -> None:
    found = ranking(1, a=10, b=10)
    shuffled = random.Random(0)
    for _ in range(200):
        for _ in range(20):
            found.count(shuffled.choice("ab"))
        assert found.rank(60.0, everyone) == set()


def test_those_that_are_gone_are_forgotten_and_the_busiest_follow() -> None:
    found = ranking(2, a=5, b=5, c=1, d=3)
    assert found.rank(0.0, {"b", "c", "d"}.__contains__) == {"a"}
    assert found.labelled == {"b", "d"}
    assert found.scores.keys() == {"b", "c", "d"}


def test_without_room_there_are_no_labels() -> None:
    found = ranking(0, a=5)
    assert found.rank(0.0, everyone) == set()
    assert found.labelled == set()
