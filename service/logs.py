"""Structured logs on standard output, from our own events and from the libraries' alike."""

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import structlog
from structlog.types import EventDict, Processor, WrappedLogger

from service.settings import LogFormat, LogLevel

# Libraries whose everyday chatter says nothing to an operator.
QUIET = ("alembic", "httpx2", "httpcore2", "huggingface_hub", "transformers", "urllib3")


def configure_logging(level: LogLevel, log_format: LogFormat) -> None:
    """Send structlog events and standard library records through one formatter.

    Replaces the root logger's handlers, so only the process that owns them calls it.

    Args:
        level: least severe events to write.
        log_format: `json`, one object a line, or `console`, for people.
    """
    threshold = logging.getLevelNamesMapping()[level]
    enriching: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        Stamp(),
    ]
    rendering = renderers(log_format)
    structlog.configure(
        processors=[*enriching, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(sys.stdout),
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*enriching, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.basicConfig(handlers=[handler], level=threshold, force=True)
    logging.captureWarnings(True)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, threshold))


def renderers(log_format: LogFormat) -> list[Processor]:
    """The last steps, which turn an event into a line."""
    if log_format == "console":
        # Not rich's tracebacks, which show local variables: those hold texts.
        return [
            structlog.dev.ConsoleRenderer(
                colors=sys.stdout.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    return [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(serializer=to_json),
    ]


class Stamp:
    """Says when an event was, in ISO 8601; all but the fraction is written down once a second."""

    def __init__(self) -> None:
        # Together, since threads log at the same time.
        self.last = (0, "")

    def __call__(self, logger: WrappedLogger, method_name: str, event: EventDict) -> EventDict:
        """Add the time, as structlog's processors do."""
        second, fraction = divmod(time.time_ns() // 1000, 1_000_000)
        latest, text = self.last
        if second != latest:
            text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self.last = (second, text)
        event["timestamp"] = f"{text}.{fraction:06d}Z"
        return event


def to_json(event: Any, default: Callable[[Any], Any]) -> str:
    """One line of JSON; `default` renders what JSON does not know."""
    try:
        return orjson.dumps(event, default=default, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        # A lone surrogate or a huge integer, which only the standard library can write.
        return json.dumps(event, default=default)
