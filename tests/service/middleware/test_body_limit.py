import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.errors import PayloadTooLarge
from service.middleware.body_limit import BodyLimit
from service.notes import KEY, RequestNotes
from tests.service.middleware.support import Exchange

LIMIT = 10


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with how much it read."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message["body"])
        more = message["more_body"]
    await Response(str(size))(scope, receive, send)


def exchange(*body: bytes, **headers: str) -> Exchange:
    return Exchange(
        *body,
        headers=[(name.replace("_", "-").encode(), v.encode()) for name, v in headers.items()],
        state={KEY: RequestNotes("id", 0.0)},
    )


@pytest.fixture
def app() -> BodyLimit:
    return BodyLimit(reading, limit=lambda scope: LIMIT)


@pytest.mark.parametrize("length", ["11", "4294967296", "9" * 5000])
async def test_a_declared_length_is_refused_unread(app: BodyLimit, length: str) -> None:
    request = exchange(b"x", content_length=length)
    with pytest.raises(PayloadTooLarge) as caught:
        await request.run(app)
    assert request.read == 0
    assert caught.value.code == "body_too_large"
    assert str(LIMIT) in caught.value.detail


async def test_a_body_that_is_not_read_may_declare_what_it_likes() -> None:
    request = exchange(b"x", content_length="11")
    await request.run(BodyLimit(Response(b"fine"), limit=lambda scope: LIMIT))
    assert (request.status, request.body) == (200, b"fine")


@pytest.mark.parametrize("length", ["10", "0", "nonsense", "-1", ""])
async def test_other_lengths_go_through(app: BodyLimit, length: str) -> None:
    request = exchange(b"x" * LIMIT, content_length=length)
    await request.run(app)
    assert (request.status, request.body) == (200, b"10")


async def test_a_stream_is_cut_off_where_it_passes_the_limit(app: BodyLimit) -> None:
    request = exchange(b"x" * 6, b"x" * 6, b"x" * 6)
    with pytest.raises(PayloadTooLarge) as caught:
        await request.run(app)
    assert caught.value.code == "body_too_large"
    assert request.read == 2


async def test_a_stream_of_just_the_limit_goes_through(app: BodyLimit) -> None:
    request = exchange(b"x" * 6, b"x" * 4)
    await request.run(app)
    assert request.body == b"10"


async def test_the_limit_is_that_of_the_route() -> None:
    app = BodyLimit(reading, limit=lambda scope: 3 if scope["path"] == "/small" else 5)
    small = exchange(b"xxxx", content_length="4")
    small.scope["path"] = "/small"
    large = exchange(b"xxxx", content_length="4")
    with pytest.raises(PayloadTooLarge):
        await small.run(app)
    await large.run(app)
    assert large.status == 200


async def test_other_protocols_pass(app: BodyLimit) -> None:
    seen: list[str] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    await Exchange(type="lifespan").run(BodyLimit(inner, limit=lambda scope: 0))
    assert seen == ["lifespan"]
