"""HTTP/1.1 as uvicorn speaks it, held to bounds that a hostile or broken client cannot pass.

The parser collects the request line and every header until they are whole, with work that grows
with the square of their length, and it waits for the rest of them forever. It also takes whatever
comes after a request whose reply is still due. Here a head has a size and a time, bodies and
replies have a pace, there are only so many connections, requests that come ahead of their turn are
held back unread, and whatever cannot be read is handed to the application, so that it gets a
request id, a log line and a problem document like any other request.
"""

import asyncio
from collections.abc import MutableMapping
from enum import Enum, auto
from typing import Any

import httptools
import structlog
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from service.disconnect import KEY as DEPARTURE, Departure
from service.errors import (
    BadRequest,
    HeadersTooLarge,
    NotImplementedHere,
    RequestTimeout,
    ServiceError,
    Unavailable,
    UriTooLong,
)
from service.lean import header_lines
from service.notes import ANSWER, FAULT
from service.state import Live

MAX_TARGET_BYTES = 16 * 1024
"""Longest path with its query."""

MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of a request's target, headers and trailers together."""

WINDOW_S = 30.0
"""How long a head may take, and how often the pace of bodies and replies is looked at."""

WINDOW_BYTES = 32 * 1024
"""What has to move within each window, in either direction."""

PART_BYTES = 4096
"""What the parser is given at a time, so that few requests are taken ahead of their turn."""

AHEAD_BYTES = 64 * 1024
"""What may come ahead of its turn before the connection is read no further. Until then it is, since
nobody would see the client go otherwise."""

LINGER_S = 0.25
"""On shutdown, how long a request that is on its way may take to begin."""

SURPLUS = 64
"""Connections beyond the limit that are told so; any more are cut off."""

SURPLUS_S = 1.0
"""How long such a connection may take to ask for something."""

PROBES = frozenset({b"/livez", b"/readyz", b"/metrics"})
"""What such a connection may ask for: a server is not ill for being in demand."""

RETRY_AFTER_S = 1

UPGRADE = b"upgrade"
CONNECT = b"CONNECT"
TRANSFER = b"transfer-encoding"
CHUNKED = b"chunked"

ENDLESS = (TRANSFER, CHUNKED)
"""Says of a request that it has a body, of unknown length."""

logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class Phase(Enum):
    """What the parser is in the middle of."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()


class HeldFlow(FlowControl):
    """Whether a connection is read: not while too much of what came from it waits for its turn."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.held = False

    def resume_reading(self) -> None:
        """Read on, if that may be."""
        if not self.held:
            super().resume_reading()

    def hold(self, held: bool) -> None:
        """Say whether too much waits."""
        self.held = held
        if held:
            self.pause_reading()
        else:
            self.resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """One connection.

    Attributes:
        phase: what its parser is in the middle of.
        fields: bytes of the request's target, headers and trailers, as far as they are whole.
        collecting: bytes since the parser last had something whole; the unfinished thing is no
            longer than that.
        received: bytes in all.
        fault: why the parser was stopped, or None where it stopped by itself.
        refused: whether the connection ends with the last reply that is due.
        told: whether the server has asked it to close.
        ahead: what came after a request whose reply is still due, and waits for its turn.
        running: the request that the application is at, or was at last.
        upgrading: whether the request being read asks for another protocol, which it does not get.
        surplus: whether there were enough connections without it.
    """

    flow: HeldFlow

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.phase = Phase.IDLE
        self.fields = 0
        self.collecting = 0
        self.received = 0
        self.fault: ServiceError | None = None
        self.refused = False
        self.told = False
        self.ahead = b""
        self.running: RequestResponseCycle | None = None
        self.upgrading = False
        self.surplus = False
        self.incoming: asyncio.TimerHandle | None = None
        self.outgoing: asyncio.TimerHandle | None = None

    # --- the connection -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; a connection that sends nothing is closed like one that is no longer used."""
        super().connection_made(transport)
        self.flow = HeldFlow(transport)
        self.live.metrics.connection_made()
        surplus = len(self.connections) - self.live.settings.max_connections
        if surplus > 0:
            self.surplus = True
            if surplus > SURPLUS:
                self.live.metrics.connection_cut()
                transport.abort()
                return
            self.loop.call_later(SURPLUS_S, self.leave)
        self.await_request()
        if self.leaving:
            # It was accepted too late to be told.
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """End; requests that wait for their turn are never begun."""
        for timer in (self.incoming, self.outgoing):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()
        self.ahead = b""
        self.pipeline.clear()
        super().connection_lost(exc)
        self.live.metrics.connection_lost()
        cycle = self.running
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            cycle.scope["state"][DEPARTURE].tell()

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        if self.refused:
            # Read, so that the reply is not lost in a reset, and thrown away.
            self.cycle.message_event.set()
            return
        self._unset_keepalive_if_required()
        self.received += len(data)
        self.ahead += data
        self.read_on()

    def read_on(self) -> None:
        """Give the parser what has come, as far as its turn is."""
        ahead, start = self.ahead, 0
        while start < len(ahead) and not (self.pipeline or self.refused):
            part = ahead[start : start + PART_BYTES]
            start += len(part)
            self.feed(part)
        self.ahead = b"" if self.refused else ahead[start:]
        if self.phase is Phase.IDLE or self.refused:
            self.forget_incoming()
        elif self.incoming is None:
            self.watch_incoming()
        if self.pipeline or self.flow.held:
            self.flow.hold(len(self.ahead) > AHEAD_BYTES)
        self.await_request()

    def feed(self, part: bytes) -> None:
        """Give the parser a part of a request."""
        self.collecting += len(part)
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserUpgrade as upgrade:
            self.stay(part[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.refuse(self.fault or malformed())
        if self.collecting > MAX_HEAD_BYTES and not self.refused:
            self.refuse(headers_too_large())

    def stay(self, rest: bytes) -> None:
        """Go on in this protocol, as a server may that is asked for another.

        The parser takes what follows such a head for that protocol. So another one is given the
        head once more, without what asks for it.

        Args:
            rest: what came after the head.
        """
        if not self.upgrading:  # CONNECT, which the application refuses
            self.cycle.keep_alive = False
            return
        self.upgrading = False
        old = self.parser
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        lines = [b"%b %b HTTP/%b" % (old.get_method(), self.url, old.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                options = [option.strip() for option in value.split(b",")]
                value = b", ".join(one for one in options if one.lower() != UPGRADE)
            if name != UPGRADE and (value or name != b"connection"):
                lines.append(b"%b: %b" % (name, value))
        self.feed(b"\r\n".join([*lines, b"", b""]))
        if rest and not self.refused:
            self.feed(rest)

    def await_request(self) -> None:
        """Have the connection closed if nothing comes for long, unless something is under way."""
        if self.phase is Phase.IDLE and not self.busy and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    @property
    def live(self) -> Live:
        """What the server's requests share."""
        live: Live = self.app_state["live"]
        return live

    @property
    def busy(self) -> bool:
        """Whether a request waits for the end of its reply."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def leaving(self) -> bool:
        """Whether the server is going, and the connection with it."""
        return self.told or self.live.phase == "draining"

    def shutdown(self) -> None:
        """Finish what is under way, and what the client may have sent already; then close."""
        self.told = True
        if self.busy:
            super().shutdown()
        else:
            self.loop.call_later(LINGER_S, self.leave)

    def leave(self) -> None:
        """Close, unless a request has come meanwhile, whose reply closes."""
        if not self.busy:
            self.transport.close()

    # --- what the parser finds ----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.phase = Phase.HEAD
        self.fields = self.collecting = 0

    def on_url(self, url: bytes) -> None:
        """A part of its target; an exception stops the parser.

        Raises:
            UriTooLong: there is more of it than there may be.
        """
        super().on_url(url)
        self.fields += len(url)
        if self.fields > MAX_TARGET_BYTES:
            raise self.stopped(uri_too_long())

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer: nothing reads those, so they are counted and dropped.

        Raises:
            HeadersTooLarge: there is more of them than there may be.
            NotImplementedHere: the body comes in a coding that is not undone here.
        """
        self.fields += len(name) + len(value) + len(": \r\n")
        if self.fields > MAX_HEAD_BYTES:
            raise self.stopped(headers_too_large())
        # Looked at one by one, as the last of several codings alone would not tell of the others.
        if (
            len(name) == len(TRANSFER)
            and name.lower() == TRANSFER
            and value.strip().lower() != CHUNKED
        ):
            raise self.stopped(unknown_coding(value))
        if self.phase is Phase.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole: the application may begin.

        Raises:
            Unavailable: there are enough connections without this one.
        """
        self.upgrading = self.parser.should_upgrade() and self.parser.get_method() != CONNECT
        if self.upgrading:
            return
        if self.surplus and self.url.partition(b"?")[0] not in PROBES:
            raise self.stopped(too_many_connections())
        self.scope["state"][DEPARTURE] = Departure()
        self.scope["state"][ANSWER] = self.answer
        super().on_headers_complete()
        self.phase = Phase.BODY
        self.collecting = 0
        if self.leaving or self.surplus:
            self.cycle.keep_alive = False

    def on_chunk_header(self) -> None:
        """A chunk of the body begins, or the trailers do."""
        self.collecting = 0

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self.collecting = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self.upgrading:
            return
        self.phase = Phase.IDLE
        self.collecting = 0
        self.forget_incoming()
        super().on_message_complete()
        if not self.pipeline:
            # A large body may have stopped the reading, without which nobody sees the client go.
            self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """It is a request's turn."""
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    # --- replies ------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """A reply is over, and it is the next request's turn."""
        super().on_response_complete()
        if self.ahead and not self.transport.is_closing():
            self.read_on()

    def answer(self, scope: MutableMapping[str, Any], lines: bytes, content: bytes) -> bool:
        """Send a whole reply of 200 in one piece, where nothing about it is out of the ordinary.

        Args:
            scope: of the request that it is for, which is no HEAD.
            lines: its headers as they are sent, the length among them; not checked.
            content: its body.

        Returns:
            False where it has to go the usual way, in messages.
        """
        cycle = self.cycle
        if (
            cycle.scope is not scope  # others have come after it already
            or cycle.response_started
            or cycle.disconnected
            or not cycle.keep_alive
            or self.flow.write_paused
        ):
            return False
        common = header_lines(cycle.default_headers)
        self.transport.write(b"%b%b%b\r\n%b" % (STATUS_LINE[200], common, lines, content))
        cycle.waiting_for_100_continue = False
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        cycle.on_response()
        return True

    # --- refusals -----------------------------------------------------------------------------

    def stopped(self, error: ServiceError) -> ServiceError:
        """Note why the parser is about to be stopped; to be raised, which stops it."""
        self.fault = error
        return error

    def refuse(self, error: ServiceError) -> None:
        """Let the application answer the present request with an error, and close.

        It is told through the state in the scope, either of the request whose body is being read
        or of one that is made up, whose body is whatever else comes; in both cases after the
        replies that are due before.
        """
        self.refused = True
        if self.phase is Phase.BODY:
            cycle = self.cycle
            if cycle.response_complete:
                self.transport.close()
                return
            cycle.scope["state"][FAULT] = error
            cycle.message_event.set()
        else:
            known = b"" if self.phase is Phase.IDLE else self.url
            headers = [] if self.phase is Phase.IDLE else self.headers
            super().on_message_begin()
            self.headers += [*headers, ENDLESS]
            self.url = b"/"
            self.scope["state"][FAULT] = error
            self.scope["state"][DEPARTURE] = Departure()
            super().on_headers_complete()
            cycle = self.cycle
            if not known:
                # Without a request line, the parser's method is a default and not the client's.
                cycle.scope["method"] = ""
        cycle.keep_alive = False

    # --- pace ---------------------------------------------------------------------------------

    def watch_incoming(self) -> None:
        """Look after a window at how much of the request has come."""
        self.incoming = self.loop.call_later(WINDOW_S, self.check_incoming, self.received)

    def forget_incoming(self) -> None:
        """Stop looking."""
        if self.incoming is not None:
            self.incoming.cancel()
            self.incoming = None

    def check_incoming(self, before: int) -> None:
        """Refuse a head that is still not whole, and a body of which too little has come."""
        slow = self.phase is Phase.HEAD or self.received - before < WINDOW_BYTES
        # While what is here has not been taken, or its turn has not come, it is not the client that
        # is slow.
        if slow and not (self.flow.read_paused or self.pipeline or self.ahead):
            self.incoming = None
            self.refuse(too_slow())
        else:
            self.watch_incoming()

    def pause_writing(self) -> None:
        """More of a reply waits than the connection takes at a time."""
        super().pause_writing()
        self.watch_outgoing()

    def resume_writing(self) -> None:
        """The client has taken nearly all of it."""
        super().resume_writing()
        if self.outgoing is not None:
            self.outgoing.cancel()
            self.outgoing = None

    def watch_outgoing(self) -> None:
        """Look after a window at how much of the reply has gone."""
        waiting = self.transport.get_write_buffer_size()
        self.outgoing = self.loop.call_later(WINDOW_S, self.check_outgoing, waiting)

    def check_outgoing(self, before: int) -> None:
        """Drop a connection whose client has taken too little."""
        if before - self.transport.get_write_buffer_size() < WINDOW_BYTES:
            logger.warning("reply_not_taken", client=self.client, bytes=before)
            self.outgoing = None
            self.transport.abort()
        else:
            self.watch_outgoing()


def malformed() -> BadRequest:
    """The error for what the parser does not take."""
    return BadRequest(
        "The request is not well-formed HTTP/1.1; send one that is, without TLS unless a proxy "
        "takes it off.",
        code="malformed_request",
    )


def uri_too_long() -> UriTooLong:
    """The error for a target beyond its limit."""
    return UriTooLong(
        f"The path and query are longer than {MAX_TARGET_BYTES} bytes; shorten them.",
        code="uri_too_long",
    )


def headers_too_large() -> HeadersTooLarge:
    """The error for a head beyond its limit."""
    return HeadersTooLarge(
        f"The request's head is larger than {MAX_HEAD_BYTES} bytes; send fewer or shorter headers.",
        code="headers_too_large",
    )


def unknown_coding(value: bytes) -> NotImplementedHere:
    """The error for a body that is not sent as it is or in chunks."""
    return NotImplementedHere(
        f"The transfer coding {value[:64].decode('latin-1')!r} is not known here; send the body as "
        "it is, with its Content-Length or in chunks.",
        code="unknown_transfer_coding",
        field="Transfer-Encoding",
    )


def too_many_connections() -> Unavailable:
    """The error for a connection beyond the limit."""
    return Unavailable(
        "The server has as many connections as it takes; send the request again shortly, and keep "
        "connections for further requests rather than open new ones.",
        code="too_many_connections",
        retry_after=RETRY_AFTER_S,
    )


def too_slow() -> RequestTimeout:
    """The error for a request that comes too slowly."""
    return RequestTimeout(
        f"The request's head took more than {WINDOW_S:g} s, or of its body came less than "
        f"{WINDOW_BYTES} bytes in that time; send it faster.",
        code="request_timeout",
    )
