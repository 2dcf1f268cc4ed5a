import json
import logging
import time
import warnings
from collections.abc import Iterator

import pytest
import structlog

from service.logs import configure_logging
from service.settings import LogFormat
from tests.support.logs import restored_logging


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with restored_logging():
        yield


def test_our_events_and_the_libraries_are_lines_of_the_same_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("INFO", "json")
    structlog.contextvars.bind_contextvars(request_id="abc")
    structlog.get_logger().info("ready", seconds=1.5)
    logging.getLogger("uvicorn.error").warning("port %d", 80)
    ours, theirs = map(json.loads, capsys.readouterr().out.splitlines())
    assert (ours["event"], ours["level"], ours["seconds"]) == ("ready", "info", 1.5)
    assert (theirs["event"], theirs["level"]) == ("port 80", "warning")
    assert theirs["logger"] == "uvicorn.error"
    assert ours["request_id"] == theirs["request_id"] == "abc"
    assert ours["timestamp"].endswith("Z")
    assert theirs["timestamp"].endswith("Z")


def test_the_time_is_that_of_the_line_across_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_logging("INFO", "json")
    written = {
        1_764_500_000_000_000_999: "2025-11-30T10:53:20.000000Z",
        1_764_500_000_987_654_321: "2025-11-30T10:53:20.987654Z",
        1_764_500_001_000_042_000: "2025-11-30T10:53:21.000042Z",
    }
    for now in written:
        monkeypatch.setattr(time, "time_ns", lambda now=now: now)
        structlog.get_logger().info("tick")
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["timestamp"] for line in lines] == list(written.values())


def test_an_exception_is_part_of_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("INFO", "json")
    try:
        raise ValueError("too many")
    except ValueError:
        structlog.get_logger().exception("failed")
    assert "ValueError: too many" in json.loads(capsys.readouterr().out)["exception"]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_the_level_holds_for_both_kinds(
    capsys: pytest.CaptureFixture[str], log_format: LogFormat
) -> None:
    configure_logging("WARNING", log_format)
    structlog.get_logger().info("quiet")
    logging.getLogger("alembic").info("quiet")
    structlog.get_logger().warning("loud", size=3)
    logging.getLogger("alembic").warning("loud")
    out = capsys.readouterr().out
    assert "quiet" not in out
    assert out.count("loud") == 2


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_tracebacks_hide_local_variables(
    capsys: pytest.CaptureFixture[str], log_format: LogFormat
) -> None:
    configure_logging("INFO", log_format)
    # Put together here, since tracebacks show the source.
    text = "".join(["pri", "vate"])
    try:
        raise ValueError(len(text))
    except ValueError:
        structlog.get_logger().exception("failed")
    out = capsys.readouterr().out
    assert "ValueError" in out
    assert "private" not in out


def test_what_utf8_cannot_hold_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("INFO", "json")
    structlog.get_logger().info("odd", text="\ud800", number=10**30, thing=object)
    line = capsys.readouterr().out
    line.encode("ascii")
    assert json.loads(line)["number"] == 10**30


def test_warnings_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("INFO", "json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", UserWarning, stacklevel=1)
    assert json.loads(capsys.readouterr().out)["logger"] == "py.warnings"


@pytest.mark.parametrize("name", ["alembic.runtime.migration", "httpx2", "urllib3.connectionpool"])
def test_chatty_libraries_are_quiet(capsys: pytest.CaptureFixture[str], name: str) -> None:
    configure_logging("DEBUG", "json")
    logging.getLogger(name).info("Will assume non-transactional DDL.")
    assert capsys.readouterr().out == ""
    logging.getLogger(name).warning("heard")
    assert json.loads(capsys.readouterr().out)["event"] == "heard"
