import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from service.disconnect import while_connected


class Connection:
    """A client that stays until told to go."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.read = 0

    async def receive(self) -> dict[str, Any]:
        self.read += 1
        if self.read == 1:
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def test_the_result_comes_back_and_nothing_is_left_running() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 3

    assert await while_connected(Connection().receive, work()) == 3
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_work_is_cancelled_when_the_client_goes() -> None:
    connection = Connection()
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    running = asyncio.create_task(while_connected(connection.receive, work()))
    await asyncio.sleep(0)
    connection.gone.set()
    with pytest.raises(ClientDisconnect):
        await running
    assert cancelled.is_set()
    assert running.cancelling() == 0


async def test_an_error_of_the_work_is_its_own() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await while_connected(Connection().receive, work())


async def test_a_cancellation_from_outside_is_not_taken_for_a_disconnect() -> None:
    running = asyncio.create_task(while_connected(Connection().receive, asyncio.sleep(60)))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_cancellation_from_outside_goes_first() -> None:
    connection = Connection()
    running = asyncio.create_task(while_connected(connection.receive, asyncio.sleep(60)))
    await asyncio.sleep(0)
    connection.gone.set()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
