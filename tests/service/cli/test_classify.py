import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import pytest
import typer

from capsules.cli.output import Output
from service.cli.classify import Question, run
from service.cli.client import Client, ServerError
from service.cli.texts import Item, Unreadable

LABELS = ("no", "yes")
QUESTION = Question(task="t", top_k=None, truncate=True)


def problem(status: int, code: str, field: str | None) -> httpx2.Response:
    errors = [{"field": field, "message": "No.", "code": code}]
    return httpx2.Response(status, json={"detail": "No.", "code": code, "errors": errors})


class Server:
    """Answers as the real one does: a text `bad` fails, alone or beside others.

    Attributes:
        sizes: texts of each request that was taken.
        gone_after: requests after which it fails.
    """

    def __init__(
        self, *, refuses: Callable[[Sequence[Any]], httpx2.Response | None] = lambda texts: None
    ) -> None:
        self.refuses = refuses
        self.sizes: list[int] = []
        self.gone_after = 1000

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        texts = json.loads(request.content)["text"]
        refusal = self.refuses(texts)
        if refusal is not None:
            return refusal
        if len(self.sizes) == self.gone_after:
            return problem(503, "draining", None)
        self.sizes.append(len(texts))
        if texts == ["bad"]:
            return problem(422, "empty_text", "text.0")
        rows = [row_of(index, text) for index, text in enumerate(texts)]
        return httpx2.Response(200, json={"data": rows})


def row_of(index: int, text: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"index": index, "task": "t", "version": 4, "digest": "d" * 64}
    if text == "bad":
        error = {"code": "empty_text", "message": "No.", "field": f"text.{index}.premise"}
        return {**row, "error": error}
    yes = len(text) / 100
    return {
        **row,
        "label": "no",
        "score": 1 - yes,
        "probs": [1 - yes, yes],
        "labels": LABELS,
        "num_classes": 2,
        "truncated": text == "long",
        "input_tokens": 3,
        "error": None,
    }


def classify(
    server: Server, items: Sequence[Item], *, as_json: bool = True, batch_size: int = 4
) -> None:
    client = Client("http://server.test", timeout=1.0, transport=httpx2.MockTransport(server))
    run(client, QUESTION, items, Output(as_json=as_json), batch_size=batch_size)


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_texts_are_answered_in_order_in_batches(capsys):
    server = Server()
    classify(server, ["x" * number for number in range(10)])
    rows = printed(capsys)
    assert server.sizes == [4, 4, 2]
    assert [row["index"] for row in rows] == list(range(10))
    assert [row["score"] for row in rows] == [1 - number / 100 for number in range(10)]
    assert rows[0]["digest"] == "d" * 64


@pytest.mark.parametrize("bad", range(5))
def test_a_text_that_fails_does_not_stop_the_others(bad, capsys):
    """The last batch holds one text, which the server answers in another way."""
    texts = ["good"] * 5
    texts[bad] = "bad"
    with pytest.raises(typer.Exit) as caught:
        classify(Server(), texts)
    assert caught.value.exit_code == 1
    captured = capsys.readouterr()
    rows = [json.loads(line) for line in captured.out.splitlines()]
    assert [row["error"] is not None for row in rows] == [text == "bad" for text in texts]
    assert rows[bad]["index"] == bad
    assert rows[bad]["error"]["code"] == "empty_text"
    assert rows[bad]["error"]["field"] in ("text", "text.premise")
    assert f"text {bad + 1}: No. [empty_text]" in captured.err
    assert "1 of 5 texts could not be classified" in captured.err


def test_unreadable_lines_keep_their_place(capsys):
    server = Server()
    unreadable = Unreadable("invalid_json", "Not JSON.")
    with pytest.raises(typer.Exit):
        classify(server, [unreadable, "good", unreadable, unreadable], batch_size=3)
    rows = printed(capsys)
    assert [row["error"] and row["error"]["code"] for row in rows] == [
        *("invalid_json", None),
        *("invalid_json", "invalid_json"),
    ]
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    assert server.sizes == [1]


@pytest.mark.parametrize(
    ("status", "code", "field"), [(422, "too_many_texts", "text"), (413, "body_too_large", None)]
)
def test_what_a_server_takes_less_of_is_split(status, code, field, capsys):
    def refuses(texts: Sequence[Any]) -> httpx2.Response | None:
        return problem(status, code, field) if len(texts) > 3 else None

    server = Server(refuses=refuses)
    classify(server, ["x" * number for number in range(8)], batch_size=8)
    assert server.sizes == [2, 2, 2, 2]
    assert [row["score"] for row in printed(capsys)] == [1 - number / 100 for number in range(8)]


def test_a_text_too_large_for_the_server_fails_alone(capsys):
    def refuses(texts: Sequence[Any]) -> httpx2.Response | None:
        return problem(413, "body_too_large", None) if "huge" in texts else None

    with pytest.raises(typer.Exit):
        classify(Server(refuses=refuses), ["a", "huge", "b"])
    assert [row["error"] is None for row in printed(capsys)] == [True, False, True]


def test_many_bytes_go_in_several_requests(capsys):
    server = Server()
    classify(server, ["x" * 600_000] * 3, batch_size=100)
    assert server.sizes == [1, 1, 1]


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("terminal", ["0", "1"])
def test_answers_are_not_lost_when_the_server_goes_away(as_json, terminal, capsys, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    server = Server()
    server.gone_after = 1
    with pytest.raises(ServerError) as caught:
        classify(server, ["x"] * 8, as_json=as_json)
    assert caught.value.code == "draining"
    assert capsys.readouterr().out.count("0.99") == (8 if as_json else 4)


def test_a_fault_of_the_task_is_told_once(capsys):
    def refuses(texts: Sequence[Any]) -> httpx2.Response | None:
        return problem(422, "invalid_task_name", "task")

    with pytest.raises(ServerError) as caught:
        classify(Server(refuses=refuses), ["x"])
    assert caught.value.code == "invalid_task_name"
    assert capsys.readouterr().out == ""


def test_a_pipe_gets_label_score_error_and_the_others(capsys):
    with pytest.raises(typer.Exit):
        classify(Server(), ["x" * 25, "bad"], as_json=False)
    assert capsys.readouterr().out == "no\t0.75\t\tyes\t0.25\n\t\tempty_text\n"


def test_a_terminal_gets_a_table(capsys, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(typer.Exit):
        classify(Server(), ["x" * 25, "bad", "[red]\x1b[31m"], as_json=False)
    shown = capsys.readouterr().out
    assert "0.7500" in shown
    assert "yes 0.2500" in shown
    assert "empty_text" in shown
    assert "[red]\\x1b[31m" in shown
    assert "t@4" in shown


def test_cut_texts_are_told(capsys):
    classify(Server(), ["long", "short", "long"])
    assert "2 of 3 texts were cut" in capsys.readouterr().err


def test_only_the_first_of_many_failures_are_told(capsys):
    with pytest.raises(typer.Exit):
        classify(Server(), ["bad"] * 30, batch_size=30)
    messages = capsys.readouterr().err.splitlines()
    assert len(messages) == 21
    assert messages[-1] == "30 of 30 texts could not be classified."


def test_no_text_is_no_failure(capsys):
    server = Server()
    classify(server, [])
    assert server.sizes == []
    assert capsys.readouterr().out == ""
