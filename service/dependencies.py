"""What endpoints ask for, as annotated types; asynchronous, so that no thread is troubled."""

from typing import Annotated

from fastapi import Depends, Request

from service.state import Live, Warm


def live_of(request: Request) -> Live:
    """The server, for an endpoint that cannot afford dependencies."""
    found: Live = request.scope["state"]["live"]
    return found


async def live(request: Request) -> Live:
    """The server."""
    return live_of(request)


async def warm(request: Request) -> Warm:
    """The server's engine, registry and backbone, once it is ready.

    Raises:
        Unavailable: it is warming up, shutting down or broken.
    """
    return live_of(request).require_warm()


LiveDep = Annotated[Live, Depends(live)]
WarmDep = Annotated[Warm, Depends(warm)]
