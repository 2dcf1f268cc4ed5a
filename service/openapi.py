"""The OpenAPI document, with the bodies that the framework does not read itself."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from service.problems import Problem

TITLE = "Capsule server"
DESCRIPTION = (
    "One frozen transformer backbone, thousands of text classification tasks. Every failure, on "
    "every route, is an RFC 9457 problem document; its `code` is stable."
)


def document(app: FastAPI, bodies: tuple[type, ...]) -> dict[str, Any]:
    """The document of an app's routes.

    Args:
        app: with all its routes.
        bodies: the shapes of the bodies that endpoints read themselves.
    """
    content = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    schemas = content.setdefault("components", {}).setdefault("schemas", {})
    for shape in (*bodies, Problem):
        schema = TypeAdapter(shape).json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[shape.__name__] = schema
    content["components"]["schemas"] = dict(sorted(schemas.items()))
    return content
