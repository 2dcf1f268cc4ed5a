"""`python -m benchmarks.front.plain SIDE`: an endpoint that does nothing.

It reads a request and sends a reply of the same shape as ours. Where it listens comes from the
environment, as for our server.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.classify.schemas import ClassifyReply, Row, Usage

PATH = "/v1/classify"
READY = "/readyz"
LABELS = tuple(f"label-{label}" for label in range(6))
PROBS = (1 / len(LABELS),) * len(LABELS)
DIGEST = "0" * 64
TOKENS = 10


class PlainRequest(BaseModel):
    """A request as one would write it down for the framework."""

    task: str
    text: str | list[str]
    top_k: int | None = None
    truncate: bool = True
    timeout_ms: int | None = None


def with_pydantic() -> ASGIApp:
    """FastAPI as its tutorial has it: models in and out."""
    app = FastAPI()

    @app.get(READY)
    async def ready() -> None:
        return None

    @app.post(PATH)
    async def classify(request: PlainRequest) -> ClassifyReply:
        texts = request.text if isinstance(request.text, list) else [request.text]
        return ClassifyReply(
            id=f"classify-{uuid4().hex}",
            object="list",
            created=int(time.time()),
            model=request.task,
            data=[
                Row(
                    index=index,
                    task=request.task,
                    version=1,
                    digest=DIGEST,
                    label=LABELS[0],
                    score=PROBS[0],
                    probs=list(PROBS),
                    labels=list(LABELS),
                    num_classes=len(LABELS),
                    truncated=False,
                    input_tokens=TOKENS,
                    error=None,
                )
                for index in range(len(texts))
            ],
            usage=Usage(
                prompt_tokens=TOKENS * len(texts),
                total_tokens=TOKENS * len(texts),
                completion_tokens=0,
            ),
        )

    return app


def with_raw_request() -> ASGIApp:
    """FastAPI's routing alone: bytes in and out, by way of orjson."""
    app = FastAPI()

    @app.get(READY)
    async def ready() -> None:
        return None

    @app.post(PATH)
    async def classify(request: Request) -> Response:
        return Response(answer(await request.body()), media_type="application/json")

    return app


def without_framework() -> ASGIApp:
    """An ASGI application and nothing else, by way of orjson."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        content = b"" if scope["path"] == READY else answer(await body_of(receive))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    return app


async def body_of(receive: Receive) -> bytes:
    """A request's body."""
    parts = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def answer(body: bytes) -> bytes:
    """The reply to a request, which is only looked at for its texts."""
    request: dict[str, Any] = orjson.loads(body)
    text = request["text"]
    texts = text if isinstance(text, list) else [text]
    tokens = TOKENS * len(texts)
    return orjson.dumps(
        {
            "id": f"classify-{uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": request["task"],
            "data": [
                {
                    "index": index,
                    "task": request["task"],
                    "version": 1,
                    "digest": DIGEST,
                    "label": LABELS[0],
                    "score": PROBS[0],
                    "probs": PROBS,
                    "labels": LABELS,
                    "num_classes": len(LABELS),
                    "truncated": False,
                    "input_tokens": TOKENS,
                    "error": None,
                }
                for index in range(len(texts))
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
        }
    )


SIDES: dict[str, Callable[[], ASGIApp]] = {
    "fastapi_pydantic": with_pydantic,
    "fastapi_orjson": with_raw_request,
    "asgi_orjson": without_framework,
}


def main(side: str) -> None:
    """Serve until a signal comes."""
    place = (os.environ["CAPSULE_HOST"], int(os.environ["CAPSULE_PORT"]))
    with socket.create_server(place, backlog=2048) as listener:
        line = json.dumps({"event": "listening", "port": listener.getsockname()[1]})
        print(line, flush=True)
        config = uvicorn.Config(
            SIDES[side](), loop="uvloop", http="httptools", log_level="warning", access_log=False
        )
        uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main(sys.argv[1])
