"""`/docs`: Swagger UI from files of the server's own, so that it needs no other host."""

from functools import cache
from importlib.resources import as_file, files

from fastapi import APIRouter, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.staticfiles import StaticFiles

from service.openapi import TITLE

PACKAGE = "fastapi_offline"
"""The distribution whose copy of Swagger UI is served; nothing else of it is used."""

# An icon in the page itself: a capsule, half filled.
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect x='1' y='5' width='14' height='6' rx='3' fill='none' stroke='%23345'/%3E"
    "%3Cpath d='M8 5H4a3 3 0 0 0 0 6h4z' fill='%23345'/%3E%3C/svg%3E"
)
# What the browser itself then holds the page to.
POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; "
    "script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
DAY_S = 24 * 60 * 60

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def page() -> Response:
    """The page; its addresses are relative, so that a proxy may serve it under a path."""
    response = get_swagger_ui_html(
        openapi_url="openapi.json",
        title=TITLE,
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url=ICON,
        swagger_ui_parameters={"validatorUrl": None},
    )
    response.headers["Content-Security-Policy"] = POLICY
    return response


@router.get("/docs/{name}")
async def file(name: str, request: Request) -> Response:
    """One of Swagger UI's files."""
    response = await assets().get_response(name, request.scope)
    response.headers["Cache-Control"] = f"max-age={DAY_S}"
    return response


@cache
def assets() -> StaticFiles:
    """The folder of these files."""
    with as_file(files(PACKAGE) / "static") as folder:
        return StaticFiles(directory=folder)
