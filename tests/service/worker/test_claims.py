import threading
from collections.abc import Collection

from service.jobs.records import Claim
from service.worker.claims import Claims

PATIENCE_S = 10.0


def test_a_heartbeat_names_what_is_worked_on() -> None:
    claims = Claims("token")
    told: list[tuple[str, tuple[Claim, ...]]] = []

    def beat(token: str, active: Collection[Claim]) -> bool:
        told.append((token, tuple(active)))
        return len(told) < 3

    with claims.hold("a", 1) as first:
        assert claims.report(beat)
        with claims.hold("b", 2) as second:
            assert claims.report(beat)
            assert claims.runs() == {("a", 1), ("b", 2)}
    assert not claims.report(beat)
    assert first == Claim("a", 1, "token")
    assert told == [("token", (first,)), ("token", (first, second)), ("token", ())]


def test_no_job_is_taken_up_while_a_heartbeat_without_it_is_under_way() -> None:
    claims = Claims("token")
    under_way, may_end, taken = threading.Event(), threading.Event(), threading.Event()

    def beat(token: str, active: Collection[Claim]) -> bool:
        under_way.set()
        assert may_end.wait(PATIENCE_S)
        return True

    def take() -> None:
        with claims.hold("a", 1):
            taken.set()

    threads = [threading.Thread(target=claims.report, args=(beat,)), threading.Thread(target=take)]
    threads[0].start()
    assert under_way.wait(PATIENCE_S)
    threads[1].start()
    assert not taken.wait(0.1)
    may_end.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert taken.is_set()


def test_what_fails_is_worked_on_no_longer() -> None:
    claims = Claims("token")
    try:
        with claims.hold("a", 1):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert claims.runs() == frozenset()
