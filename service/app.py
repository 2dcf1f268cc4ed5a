"""Puts the HTTP application together; does nothing until its lifespan begins."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Scope

from capsules.release import release
from service.api.capsules import endpoints as capsules
from service.api.capsules.schemas import AliasTarget
from service.api.capsules.upload import FRAMING_BYTES
from service.api.classify import endpoints as classify
from service.api.classify.schemas import ClassifyRequest
from service.api.docs import endpoints as docs
from service.api.health import endpoints as health
from service.api.jobs import endpoints as jobs
from service.api.jobs.schemas import JobRequest, TrainingSpec
from service.api.jobs.upload import body_limit as submission_limit
from service.api.models import endpoints as models
from service.body import faults_of
from service.errors import ServiceError
from service.lean import LeanLane
from service.metrics import Metrics
from service.middleware.edge import Edge
from service.middleware.exchange import CLIENT_GONE
from service.notes import notes_of
from service.openapi import DESCRIPTION, TITLE, document
from service.problems import InvalidRequest, respond, respond_http
from service.settings import Settings
from service.startup import Assemble, assemble, running
from service.state import Live, State

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


class Application(FastAPI):
    """The framework behind our edge, in the place of its own outermost middlewares.

    Each takes its part of every request's time. The one for exceptions and the one for the size of
    bodies are left out since the edge sees to both, and the one for telemetry since none is set up.
    """

    def build_middleware_stack(self) -> ASGIApp:
        """What every request passes through, from the inside out."""
        assert not self.user_middleware, "the edge is the only middleware"
        assert not {Exception, 500} & self.exception_handlers.keys(), "the edge answers for these"
        live: Live = self.state.live
        routed = ExceptionMiddleware(
            AsyncExitStackMiddleware(self.router), handlers=self.exception_handlers
        )
        lane = LeanLane(routed, routes=self.router.routes, handlers=self.exception_handlers)
        return Edge(lane, live.metrics, partial(body_limit, live.settings))


def create_app(
    settings: Settings,
    *,
    build: Assemble = assemble,
    on_fatal: Callable[[], None] = lambda: None,
    on_warm: Callable[[], None] = lambda: None,
) -> FastAPI:
    """The application.

    Args:
        settings: of the server.
        build: builds what requests are served with, in the background.
        on_fatal: is called where that fails; the server should end then.
        on_warm: is called once it is done, before the first request is served with it.

    Returns:
        The app; `app.state.live` is its `Live`.
    """
    live = Live(settings, Metrics(settings.metrics_tasks))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[State]:
        async with running(live, build, on_fatal, on_warm):
            yield State(live=live)

    app = Application(
        title=TITLE,
        description=DESCRIPTION,
        version=release(),
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.live = live
    for feature in (classify, capsules, jobs, models, health, docs):
        # Not by include_router, which would match every path once more for each request.
        app.router.routes.extend(feature.router.routes)
    app.add_exception_handler(ServiceError, on_service_error)
    app.add_exception_handler(RequestValidationError, on_invalid_parameter)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(ClientDisconnect, on_client_disconnect)
    app.openapi = partial(openapi, app)  # type: ignore[method-assign]
    return app


def openapi(app: FastAPI) -> dict[str, Any]:
    """The app's OpenAPI document, made once."""
    if app.openapi_schema is None:
        app.openapi_schema = document(app, (ClassifyRequest, AliasTarget, JobRequest, TrainingSpec))
    return app.openapi_schema


def body_limit(settings: Settings, scope: Scope) -> int:
    """The most bytes of a request's body."""
    if scope["method"] == "POST" and scope["path"] == capsules.router.prefix:
        return settings.max_artefact_bytes + FRAMING_BYTES
    if scope["method"] == "POST" and scope["path"] == jobs.router.prefix:
        return submission_limit(settings, scope)
    return settings.max_body_bytes


async def on_service_error(request: Request, error: Exception) -> Response:
    """Our own errors."""
    assert isinstance(error, ServiceError), "registered for these"
    return respond(error, notes_of(request.scope))


async def on_invalid_parameter(request: Request, error: Exception) -> Response:
    """Parameters of a path, query or header that are not valid; named without where they were."""
    assert isinstance(error, RequestValidationError), "registered for these"
    faults = faults_of(error.errors(), skip=1)
    return respond(InvalidRequest(faults), notes_of(request.scope))


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Paths and methods that do not exist."""
    assert isinstance(error, HTTPException), "registered for these"
    headers = {"Allow": allowed(request)} if error.status_code == 405 else {}
    return respond_http(error, notes_of(request.scope), headers)


async def on_client_disconnect(request: Request, error: Exception) -> Response:
    """Nobody is there to read a reply; this only gives the log its status."""
    return Response(status_code=CLIENT_GONE)


def allowed(request: Request) -> str:
    """The methods of a path; several routes may share it, of which the framework names one."""
    app: FastAPI = request.app
    scope = {key: request.scope[key] for key in ("type", "path", "root_path")}
    return ", ".join(
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] == Match.FULL for route in app.routes)
    )
