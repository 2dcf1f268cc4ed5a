import asyncio
import io
import os
import sys

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.record import Record
from benchmarks.sender import Failure, Sender, carry_out, sender

MODULE = "tests.benchmarks.test_sender"
"""This one, as the process runs it."""


class Order(Record):
    """What to do: give a number back, or fail with a reason."""

    number: int
    reason: str = ""


class Outcome(Record):
    """What came of it."""

    number: int
    process: int
    cores: tuple[int, ...]


async def obey(order):
    if order.reason:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail(order.reason))
            group.create_task(fail("as well"))
    return Outcome(
        number=order.number, process=os.getpid(), cores=tuple(sorted(os.sched_getaffinity(0)))
    )


async def fail(reason):
    raise BenchmarkError(reason)


def test_orders_are_carried_out_one_after_another_in_a_process_of_its_own():
    with sender(MODULE, Outcome) as process:
        outcomes = [process.send(Order(number=number)) for number in range(3)]
    assert [outcome.number for outcome in outcomes] == [0, 1, 2]
    (child,) = {outcome.process for outcome in outcomes}
    assert child != os.getpid()


def test_an_order_that_cannot_be_carried_out_is_told_and_does_not_end_the_process():
    with sender(MODULE, Outcome) as process:
        with pytest.raises(BenchmarkError, match="no such server; as well"):
            process.send(Order(number=1, reason="no such server"))
        assert process.send(Order(number=2)).number == 2


def test_a_process_keeps_to_its_core():
    core = max(os.sched_getaffinity(0))
    with sender(MODULE, Outcome, core) as process:
        assert process.send(Order(number=0)).cores == (core,)


def test_a_process_that_has_ended_is_told():
    with sender(MODULE, Outcome) as process:
        process.orders.write("no order\n")
        with pytest.raises(BenchmarkError, match="ended"):
            process.send(Order(number=0))


def test_what_is_told_is_of_the_kind_that_was_asked_for():
    for line in (Failure(failure="why"), Order(number=0)):
        process: Sender[Order, Outcome] = Sender(
            Outcome, io.StringIO(), io.StringIO(line.model_dump_json() + "\n")
        )
        with pytest.raises((BenchmarkError, ValueError)) as caught:
            process.send(Order(number=0))
        assert isinstance(caught.value, BenchmarkError) == isinstance(line, Failure)


def test_there_may_be_nothing_to_do(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    carry_out(Order, obey)
    assert capsys.readouterr().out == ""


if __name__ == "__main__":
    carry_out(Order, obey)
