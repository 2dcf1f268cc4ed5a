import json
import threading
from types import SimpleNamespace
from typing import Annotated, Any

import orjson
import pytest
from pydantic import BaseModel, ConfigDict, FailFast, with_config
from starlette.requests import ClientDisconnect, Request
from typing_extensions import TypedDict

from service.api.classify.schemas import ClassifyRequest
from service.body import JsonBody, read_bytes
from service.errors import BadRequest, UnsupportedMediaType
from service.problems import InvalidRequest


@with_config(ConfigDict(extra="forbid", strict=True))
class Shape(TypedDict, total=False):
    name: str
    size: int
    anything: Any
    list: Annotated[list[int], FailFast()]


BODY = JsonBody(Shape)


def decode(body: bytes, max_values: int = 1000) -> Shape:
    return BODY.decode(body, max_values)


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
    assert await BODY.read(request, 1000) == {"name": "a", "size": 3}


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "", "jsonish", "/"]
)
async def test_other_content_types_are_refused_unread(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        await BODY.read(request_of(content_type=content_type), 1000)
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
        decode(body)
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
        decode(body)
    (fault,) = caught.value.faults
    assert (fault.field, fault.code) == (field, code)


def test_all_faults_are_found_at_once() -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode(b'{"name":1,"size":"x","colour":2}')
    assert {fault.field for fault in caught.value.faults} == {"name", "size", "colour"}


def test_of_many_faults_the_first_are_told() -> None:
    body = b"{" + b",".join(b'"key%d":1' % number for number in range(900)) + b"}"
    with pytest.raises(InvalidRequest) as caught:
        decode(body)
    assert (caught.value.code, caught.value.field) == ("invalid_request", "key0")
    assert [fault.field for fault in caught.value.faults] == [f"key{n}" for n in range(20)]


def test_a_list_is_given_up_at_its_first_fault() -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode(b'{"list":[1,2,"x",[],{}]}')
    assert [fault.field for fault in caught.value.faults] == ["list.2"]


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever builds the values of a body fails the test."""

    def build(*_: object) -> None:
        pytest.fail("the values were built")

    monkeypatch.setattr(
        BODY, "adapter", SimpleNamespace(validate_json=build, validate_python=build)
    )
    monkeypatch.setattr(json, "loads", build)


@pytest.mark.parametrize(
    ("head", "value", "tail", "values"),
    [
        (b'{"list":[', b"1,", b"1]}", 2_000_000),
        (b'{"list":[', b"[],", b"[]]}", 1_300_000),
        (b'{"anything":[', b"[],", b"[]]}", 1_300_000),
        (b'{"anything":[[', b"{},", b"{}]]}", 1_300_000),
        (b'{"name":[', b"[],", b"[]]}", 1_300_000),
        (b"{", b'"a":1,', b'"b":1}', 600_000),
        (b'{"anything":{', b'"\\ud800":1,', b'"b":1}}', 300_000),
        (b'["', b'","', b'"]', 1_300_000),
    ],
)
@pytest.mark.usefixtures("unbuilt")
def test_too_many_values_are_refused_before_they_are_built(
    head: bytes, value: bytes, tail: bytes, values: int
) -> None:
    for count in (1000, values):
        with pytest.raises(InvalidRequest) as caught:
            decode(head + value * count + tail)
        assert (caught.value.code, caught.value.field) == ("too_many_values", None)
        assert caught.value.detail == (
            "The body holds more than 1000 JSON values, nested ones included; split the request."
        )


@pytest.mark.parametrize(
    ("head", "value", "tail", "values"),
    [
        (b"", b"[", b"", 4_000_000),
        (b"", b'{"a":', b"", 800_000),
        (b'{"anything":[', b"1,", b"1]", 1_000_000),
        (b'{"anything":"\\ud800",', b'"a":1,', b"}", 600_000),
        (b"{", b'"a":"b,', b"", 500_000),
    ],
)
@pytest.mark.usefixtures("unbuilt")
def test_what_is_not_json_is_no_json_at_any_size(
    head: bytes, value: bytes, tail: bytes, values: int
) -> None:
    for count in (2000, values):
        with pytest.raises(BadRequest) as caught:
            decode(head + value * count + tail)
        assert caught.value.code == "invalid_json"


async def test_only_a_small_body_is_read_on_the_event_loop() -> None:
    threads = []

    class Watched(JsonBody[Shape]):
        def decode(self, body: bytes, max_values: int) -> Shape:
            threads.append(threading.get_ident())
            return super().decode(body, max_values)

    watched, here = Watched(Shape), threading.get_ident()
    for size in (10, 1_000_000):
        await watched.read(request_of(chunk(orjson.dumps({"name": "a" * size}))), 1000)
    assert threads[0] == here != threads[1]


@pytest.mark.parametrize("values", [999, 1000])
def test_values_up_to_the_limit_are_read(values: int) -> None:
    # The object and the list are values as well.
    numbers = list(range(values - 2))
    assert decode(orjson.dumps({"list": numbers})) == {"list": numbers}


def test_commas_and_brackets_in_texts_are_no_values() -> None:
    name = '[{,"\\' * 100_000
    assert decode(orjson.dumps({"name": name})) == {"name": name}


async def test_a_large_body_is_read_like_a_small_one() -> None:
    name = "a" * 1_000_000
    assert await BODY.read(request_of(chunk(orjson.dumps({"name": name}))), 1000) == {"name": name}
    with pytest.raises(InvalidRequest) as caught:
        await BODY.read(request_of(chunk(orjson.dumps({"name": [name]}))), 1000)
    assert caught.value.field == "name"


def test_half_surrogate_pairs_are_kept_for_those_who_can_name_their_field() -> None:
    assert decode(b'{"anything":"\\ud800"}') == {"anything": "\ud800"}
    assert decode(b'{"name":"\\udc00 lone"}') == {"name": "\udc00 lone"}
    assert decode(b'{"anything":"\\ud83d\\ude00"}') == {"anything": "😀"}


def test_of_equal_keys_the_last_counts() -> None:
    assert decode(b'{"name":"a","name":"b"}') == {"name": "b"}


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    width: int = 0


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid")

    part: Part = Part()
    parts: list[Part] = []


@pytest.mark.parametrize(
    ("body", "field", "known"),
    [
        (b'{"colour":1}', "colour", "part, parts"),
        (b'{"part":{"colour":1}}', "part.colour", "width"),
        (b'{"parts":[{},{"a.b":"\\ud800"}]}', "parts.1.a.b", "width"),
    ],
)
def test_an_unknown_field_is_told_beside_those_there_are(
    body: bytes, field: str, known: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        JsonBody(Whole).decode(body, 1000)
    assert caught.value.field == field
    assert caught.value.detail == f"{field}: There is no such field; there are {known}."


def test_all_fields_of_a_classification_are_told() -> None:
    with pytest.raises(InvalidRequest) as caught:
        JsonBody(ClassifyRequest).decode(b'{"task":"a","text":"b","explain":true}', 1000)
    known = "task, text, inputs, tasks, model, input, top_k, truncate, timeout_ms"
    assert caught.value.detail == f"explain: There is no such field; there are {known}."
    with pytest.raises(InvalidRequest) as caught:
        JsonBody(ClassifyRequest).decode(b'{"inputs":[{"task":"a","text":"b","top_k":1}]}', 1000)
    assert caught.value.detail == "inputs.0.top_k: There is no such field; there are task, text."


@pytest.mark.parametrize("text", ['"b"', '"\\ud800"'])
def test_of_a_key_given_twice_the_last_counts(text: str) -> None:
    """Whichever parser reads it; half a surrogate pair needs the other one."""
    body = f'{{"anything":"a","name":"c","anything":{text}}}'.encode()
    assert decode(body) == {"anything": json.loads(text), "name": "c"}
