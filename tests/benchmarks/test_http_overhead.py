import pytest

from benchmarks.http_overhead import BARE, HTTP, IN_PROCESS, QUICK, measure


@pytest.mark.timeout(300)
def test_server_and_engine_are_measured_side_by_side(context):
    """A real server in a process of its own, on a tiny backbone."""
    findings = measure(context)
    case = f"{QUICK.concurrency} at a time"
    units = ("requests/s", "processor ms/request")
    assert {(one.case, one.side, one.unit) for one in findings.series} == {
        *((case, side, unit) for side in (HTTP, IN_PROCESS) for unit in units),
        *(("one at a time", side, "ms") for side in (HTTP, IN_PROCESS, BARE)),
    }
    for one in findings.series:
        single = one.case == "one at a time"
        expected = QUICK.single_requests * QUICK.single_rounds if single else QUICK.rounds
        assert len(one.samples) == expected
        assert min(one.samples) >= 0
    held = [one.name for one in findings.figures if one.goal is not None]
    assert held == [
        f"{case}: requests a second, HTTP / engine",
        "one at a time: p50 over HTTP above tokenise and bare forward",
    ]
