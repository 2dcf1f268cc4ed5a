"""Probes and metrics."""

from fastapi import APIRouter, Response

from service.api.health.schemas import Health
from service.dependencies import LiveDep
from service.errors import Unavailable
from service.metrics import MEDIA_TYPE
from service.problems import responses

router = APIRouter(tags=["health"])


@router.get("/livez", summary="Is it alive?", responses=responses(Unavailable))
async def livez(live: LiveDep) -> Health:
    """Fails only where a restart is the remedy: when the model has stopped."""
    live.require_alive()
    return Health()


@router.get("/readyz", summary="Is it ready?", responses=responses(Unavailable))
async def readyz(live: LiveDep) -> Health:
    """Fails while the server warms up, once it shuts down, and when the model has stopped."""
    live.require_warm()
    return Health()


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus' text format.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **responses(),
    },
)
async def metrics(live: LiveDep) -> Response:
    """Every metric of this server."""
    return Response(live.metrics.exposition(), headers={"Content-Type": MEDIA_TYPE})
