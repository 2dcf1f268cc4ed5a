"""`capsule classify`: the labels of texts, in their order."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import typer
from rich.table import Table
from rich.text import Text as Styled

from capsules.cli.failure import FAILURE
from capsules.cli.output import Output, cell, say, warn
from service.cli.client import Client, ServerError, Text
from service.cli.replies import Row, RowError
from service.cli.texts import Item, Unreadable, batches

BATCH_BYTES = 1024 * 1024
SPLITTING = frozenset({"too_many_texts", "body_too_large"})
"""Codes of refusals that smaller requests do not meet."""

MAX_TOLD = 20
SHOWN_CHARACTERS = 60
POSITION = re.compile(r"^text\.\d+")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about every text.

    Attributes:
        task: its name, with a version or alias if wanted.
        top_k: how many labels are wanted; None for all of them.
        truncate: whether long texts are cut.
    """

    task: str
    top_k: int | None
    truncate: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """A text and what became of it."""

    item: Item
    row: Row


def run(
    client: Client, question: Question, items: Iterable[Item], output: Output, *, batch_size: int
) -> None:
    """Classify texts and show the answers, as they come unless it is in a table.

    Raises:
        typer.Exit: a text could not be classified.
        ServerError: none of the rest could be.
    """
    total = failed = truncated = 0
    shown: list[Answer] = []
    try:
        for answer in answers(client, question, items, batch_size):
            row = answer.row
            total += 1
            truncated += bool(row.truncated)
            if row.error is not None:
                failed += 1
                if failed <= MAX_TOLD:
                    told = f"text {total}: {row.error.message} [{row.error.code}]"
                    say(told, style="red")
            if output.human:
                shown.append(answer)
            elif output.as_json:
                typer.echo(row.model_dump_json(ensure_ascii=True))
            else:
                output.write_rows([line(row)])
    finally:
        # Where the server goes away in the middle, what it has answered is not lost.
        if shown:
            output.console.print(table(shown))
    if truncated:
        warn(
            f"{truncated:,} of {total:,} texts were cut to the task's length; --no-truncate "
            "refuses such texts instead."
        )
    if failed:
        say(f"{failed:,} of {total:,} texts could not be classified.", style="red")
        raise typer.Exit(FAILURE)


def answers(
    client: Client, question: Question, items: Iterable[Item], batch_size: int
) -> Iterator[Answer]:
    """Every text with its answer, in order."""
    start = 0
    for batch in batches(items, rows=batch_size, size=BATCH_BYTES):
        texts = [item for item in batch if not isinstance(item, Unreadable)]
        replies = iter(ask(client, question, texts) if texts else ())
        for index, item in enumerate(batch, start):
            row = (
                refused(question.task, item.code, item.message)
                if isinstance(item, Unreadable)
                else next(replies)
            )
            yield Answer(item, placed(row, index))
        start += len(batch)


def ask(client: Client, question: Question, texts: Sequence[Text]) -> list[Row]:
    """Answers to a few texts; a text that alone is refused has an error for an answer.

    Raises:
        ServerError: the refusal is not of a text.
    """
    try:
        return client.classify(
            question.task, texts, top_k=question.top_k, truncate=question.truncate
        )
    except ServerError as failure:
        if len(texts) > 1 and failure.code in SPLITTING:
            half = len(texts) // 2
            return [*ask(client, question, texts[:half]), *ask(client, question, texts[half:])]
        # The server answers many texts each for itself, but one as the whole request.
        of_text = failure.code in SPLITTING or (failure.field or "").startswith("text")
        if len(texts) == 1 and failure.answered and of_text:
            return [refused(question.task, failure.code, failure.message)]
        raise


def refused(task: str, code: str, message: str) -> Row:
    """The row of a text that has no answer."""
    return Row(index=0, task=task, error=RowError(code=code, message=message, field="text"))


def placed(row: Row, index: int) -> Row:
    """A row as the text at `index` among all of them, not among those of its request."""
    changes: dict[str, object] = {"index": index}
    if row.error is not None and row.error.field is not None:
        field = POSITION.sub("text", row.error.field)
        changes["error"] = row.error.model_copy(update={"field": field})
    return row.model_copy(update=changes)


def line(row: Row) -> list[object]:
    """Label, score and error code; then the other labels with their scores."""
    others = [value for pair in ranked(row)[1:] for value in pair]
    return [row.label, row.score, row.error and row.error.code, *others]


def ranked(row: Row) -> list[tuple[str, float]]:
    """Labels with their scores, best first."""
    pairs = zip(row.labels or (), row.probs or (), strict=True)
    return sorted(pairs, key=lambda pair: pair[1], reverse=True)


def table(shown: Sequence[Answer]) -> Table:
    """Texts and answers, for people."""
    runners_up = any(len(answer.row.labels or ()) > 1 for answer in shown)
    grid = Table(caption=answered_by(shown), caption_justify="left")
    grid.add_column("text", max_width=SHOWN_CHARACTERS, no_wrap=True, overflow="ellipsis")
    grid.add_column("label")
    grid.add_column("score", justify="right")
    if runners_up:
        grid.add_column("then")
    for answer in shown:
        row = answer.row
        if row.error is not None:
            grid.add_row(excerpt(answer.item), Styled(cell(row.error.code), style="red"))
            continue
        cells = [excerpt(answer.item), cell(row.label), f"{row.score or 0.0:.4f}"]
        rest = ", ".join(f"{label} {score:.4f}" for label, score in ranked(row)[1:])
        grid.add_row(*cells, *([cell(rest)] if runners_up else []))
    return grid


def answered_by(shown: Sequence[Answer]) -> str:
    """The versions that gave the answers."""
    versions = {f"{one.row.task}@{one.row.version}" for one in shown if one.row.version}
    return cell(", ".join(sorted(versions)))


def excerpt(item: Item) -> str:
    """The beginning of a text."""
    if isinstance(item, Unreadable):
        return ""
    text = item if isinstance(item, str) else ", ".join(f"{k}: {v}" for k, v in item.items())
    return cell(text[: 2 * SHOWN_CHARACTERS])
