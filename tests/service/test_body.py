import time
from typing import Any

import pytest
from pydantic import ConfigDict, with_config
from starlette.requests import ClientDisconnect, Request
from typing_extensions import TypedDict

from service.body import JsonBody, read_bytes
from service.errors import BadRequest, UnsupportedMediaType
from service.problems import InvalidRequest


@with_config(ConfigDict(extra="forbid", strict=True))
class Shape(TypedDict, total=False):
    name: str
    size: int
    anything: Any


BODY = JsonBody(Shape)


def request_of(*messages: dict[str, Any], content_type: str | None = None) -> Request:
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    headers = [] if content_type is None else [(b"content-type", content_type.encode())]
    return Request({"type": "http", "headers": headers}, receive)


def chunk(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.mark.parametrize(
    "content_type",
    [None, "application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"],
)
async def test_json_is_read(content_type: str | None) -> None:
    request = request_of(chunk(b'{"name":"a","size":3}'), content_type=content_type)
    assert await BODY.read(request) == {"name": "a", "size": 3}


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "", "jsonish", "/"]
)
async def test_other_content_types_are_refused_unread(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        await BODY.read(request_of(content_type=content_type))
    assert caught.value.code == "unsupported_media_type"
    assert caught.value.field == "Content-Type"
    assert "application/json" in caught.value.detail


async def test_a_body_in_pieces_is_put_together() -> None:
    request = request_of(chunk(b'{"name"', more=True), chunk(b"", more=True), chunk(b':"a"}'))
    assert await read_bytes(request) == b'{"name":"a"}'


async def test_a_client_that_leaves_before_the_end_is_noticed() -> None:
    request = request_of(chunk(b"{", more=True), {"type": "http.disconnect"})
    with pytest.raises(ClientDisconnect):
        await read_bytes(request)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nope",
        b'{"name":"\xff"}',
        b"\xff\xfe{\x00}\x00",
        b'{"name":"a\x00"}',
        b'{"anything":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"size":' + b"9" * 5000 + b"}",
        b'{"name":"\\ud80"}',
        b'{"name":"\\ud800",' + b"[" * 100_000,
    ],
)
def test_what_is_not_json_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        BODY.decode(body)
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        (b"[]", None, "invalid_value"),
        (b"null", None, "invalid_value"),
        (b'{"name":3}', "name", "invalid_value"),
        (b'{"name":null}', "name", "invalid_value"),
        (b'{"size":"3"}', "size", "invalid_value"),
        (b'{"size":true}', "size", "invalid_value"),
        (b'{"size":3.0}', "size", "invalid_value"),
        (b'{"size":NaN}', "size", "invalid_value"),
        (b'{"size":Infinity}', "size", "invalid_value"),
        (b'{"size":1e400}', "size", "invalid_value"),
        (b'{"colour":1}', "colour", "unknown_field"),
        (b'{"name":"\\ud800","size":"3"}', "size", "invalid_value"),
    ],
)
def test_json_of_another_shape_is_told_by_its_field(
    body: bytes, field: str | None, code: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        BODY.decode(body)
    (fault,) = caught.value.faults
    assert (fault.field, fault.code) == (field, code)


def test_all_faults_are_found_at_once() -> None:
    with pytest.raises(InvalidRequest) as caught:
        BODY.decode(b'{"name":1,"size":"x","colour":2}')
    assert {fault.field for fault in caught.value.faults} == {"name", "size", "colour"}


def test_a_flood_of_faults_is_only_counted() -> None:
    started = time.process_time()
    with pytest.raises(InvalidRequest) as caught:
        BODY.decode(b"{" + b'"a":1,' * 500_000 + b'"b":1}')
    assert caught.value.code == "invalid_request"
    assert "500001" in caught.value.detail
    assert time.process_time() - started < 2


def test_half_surrogate_pairs_are_kept_for_those_who_can_name_their_field() -> None:
    assert BODY.decode(b'{"anything":"\\ud800"}') == {"anything": "\ud800"}
    assert BODY.decode(b'{"name":"\\udc00 lone"}') == {"name": "\udc00 lone"}
    assert BODY.decode(b'{"anything":"\\ud83d\\ude00"}') == {"anything": "😀"}


def test_of_equal_keys_the_last_counts() -> None:
    assert BODY.decode(b'{"name":"a","name":"b"}') == {"name": "b"}
