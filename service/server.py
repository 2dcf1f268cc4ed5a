"""Runs the application under uvicorn, and tells by its exit code how that went."""

import asyncio
import ctypes
import errno
import gc
import math
import signal
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from service.app import create_app
from service.descriptors import affordable
from service.logs import configure_logging
from service.protocol import BoundedProtocol
from service.settings import Settings, unknown_variables
from service.startup import Assemble, assemble
from service.state import Live
from service.worker.supervisor import supervisor_for

SUCCESS = 0
FAILURE = 1
BACKLOG = 2048
KEEP_ALIVE_S = 75
"""Longer than load balancers leave connections idle, lest they use one that is being closed."""

LAST_CALL_S = 0.05
"""How long connections that were made before a shutdown may take to be accepted."""

SO_ATTACH_FILTER = 26
"""Linux's option for a packet filter, which Python has no name for."""

RETURN_CONSTANT = 0x06
"""The filter's instruction that says how many bytes of a packet to keep."""

UNUSABLE_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

logger = structlog.stdlib.get_logger(__name__)


class Server(uvicorn.Server):
    """A server that a signal stops gracefully, which is no failure.

    Args:
        config: how uvicorn serves.
        live: is drained first.
        on_exit: is called by every signal; it must be fit for signal handlers.
    """

    def __init__(
        self, config: uvicorn.Config, live: Live, on_exit: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(config)
        self.live = live
        self.on_exit = on_exit
        self.failed = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take no more work and finish what is there; a second interrupt leaves at once."""
        self.live.drain()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self.on_exit()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let nobody else in, accept those who wait at the door, and only then close it.

        To close a listener resets the connections that were made and not yet accepted.
        """
        for listener in sockets or ():
            deafen(listener)
        await asyncio.sleep(LAST_CALL_S)
        await super().shutdown(sockets)

    def fail(self) -> None:
        """Stop, and be remembered as failed."""
        self.failed = True
        self.should_exit = True


def serve(settings: Settings, build: Assemble = assemble) -> int:
    """Serve until a signal comes, or until the server cannot go on.

    Takes over the process's logging, signals and garbage collection.

    Args:
        settings: of the server.
        build: builds what requests are served with.

    Returns:
        0 after a graceful stop; 1 where the address cannot be listened on, or the backbone or the
        database cannot be used. The log says why, in one line.
    """
    configure_logging(settings.log_level, settings.log_format)
    for name in unknown_variables():
        logger.warning("unknown_setting", variable=name, remedy="check the spelling, or unset it")
    try:
        sockets = listen(settings.host, settings.port)
    except OSError as error:
        logger.critical("start_failed", code="cannot_listen", reason=explain(error, settings))
        return FAILURE
    for listener in sockets:
        host, port = listener.getsockname()[:2]
        logger.info("listening", host=host, port=port)
    return run(within_reach(settings), sockets, build)


def within_reach(settings: Settings) -> Settings:
    """The settings with no more connections than the process may have open files for."""
    connections = affordable(settings.max_connections)
    if connections < settings.max_connections:
        logger.warning(
            "connections_limited",
            connections=connections,
            remedy="raise the limit of open files (ulimit -n), or lower CAPSULE_MAX_CONNECTIONS",
        )
    return settings.model_copy(update={"max_connections": connections})


def run(settings: Settings, sockets: list[socket.socket], build: Assemble) -> int:
    """Serve on sockets, which are closed at the end; see :func:`serve`.

    The worker is started once the server is warm, so that it does not make it wait, and leaves the
    processor to the last requests as soon as the server is to stop.
    """
    worker = supervisor_for(settings)

    def on_fatal() -> None:
        server.fail()

    def on_warm() -> None:
        settle()
        if settings.train:
            worker.start()

    app = create_app(settings, build=build, on_fatal=on_fatal, on_warm=on_warm)
    server = Server(config_for(app, settings), app.state.live, on_exit=worker.ask)
    try:
        server.run(sockets)
    finally:
        worker.stop()
        # Spares the interpreter its last collections, which take seconds; a server that was never
        # warm has not settled.
        gc.freeze()
    return FAILURE if server.failed else SUCCESS


def settle() -> None:
    """Exempt what start-up left behind, which stays until the end, from garbage collection.

    Collections, and above all the last ones on exit, would look through all of it in vain.
    """
    gc.collect()
    gc.freeze()


def config_for(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """How uvicorn serves the application."""
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_s),
    )


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of a host.

    Args:
        host: an address, or a name that may have several.
        port: 0 takes a free one; with several addresses, the first's.

    Raises:
        OSError: one of them cannot be listened on, or the name has none.
    """
    sockets: list[socket.socket] = []
    unusable: OSError | None = None
    try:
        for family, *_, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            place = (address[0], port)
            try:
                sockets.append(socket.create_server(place, family=family, backlog=BACKLOG))
            except OSError as error:
                # A name may have an IPv6 address on a machine without IPv6.
                if error.errno not in UNUSABLE_HERE:
                    raise
                unusable = error
            else:
                port = sockets[0].getsockname()[1]
        if not sockets and unusable is not None:
            raise unusable
    except OSError:
        for listener in sockets:
            listener.close()
        raise
    return sockets


def deafen(listener: socket.socket) -> None:
    """Let a listener hear of no more connections; those that were made can still be accepted.

    A packet filter drops whatever comes to the listener itself. A client that is dropped tries again
    after a second, and is refused once the listener is closed. Elsewhere than on Linux, nothing
    like it exists.
    """
    if sys.platform != "linux":
        return
    drop_all = ctypes.create_string_buffer(struct.pack("HBBI", RETURN_CONSTANT, 0, 0, 0))
    program = struct.pack("HP", 1, ctypes.addressof(drop_all))
    with suppress(OSError):  # a kernel without filters
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def explain(error: OSError, settings: Settings) -> str:
    """Why an address cannot be listened on, and what to do about it."""
    place = f"{settings.host}:{settings.port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{place} is in use; stop what listens there, or give another --port or CAPSULE_PORT."
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{place} is not permitted; give a --port or CAPSULE_PORT from 1024."
    return (
        f"{place} cannot be listened on ({error.strerror}); give an address of this machine as "
        "--host or CAPSULE_HOST."
    )
