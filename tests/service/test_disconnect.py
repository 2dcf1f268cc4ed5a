import asyncio

import pytest
from starlette.requests import ClientDisconnect

from service.disconnect import KEY, Departure, while_connected


async def three() -> int:
    await asyncio.sleep(0)
    return 3


async def test_the_result_comes_back_and_nothing_is_left_to_be_told() -> None:
    departure = Departure()
    assert await while_connected({KEY: departure}, three()) == 3
    departure.tell()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_server_that_tells_nothing_is_no_hindrance() -> None:
    assert await while_connected({}, three()) == 3


async def test_the_work_is_cancelled_when_the_client_goes() -> None:
    departure = Departure()
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    running = asyncio.create_task(while_connected({KEY: departure}, work()))
    await asyncio.sleep(0)
    departure.tell()
    with pytest.raises(ClientDisconnect):
        await running
    assert cancelled.is_set()
    assert running.cancelling() == 0


async def test_work_is_not_begun_for_a_client_that_has_gone() -> None:
    begun = False

    async def work() -> None:
        nonlocal begun
        begun = True

    departure = Departure()
    departure.tell()
    with pytest.raises(ClientDisconnect):
        await while_connected({KEY: departure}, work())
    assert not begun


async def test_an_error_of_the_work_is_its_own() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await while_connected({KEY: Departure()}, work())


async def test_a_cancellation_from_outside_is_not_taken_for_a_disconnect() -> None:
    running = asyncio.create_task(while_connected({KEY: Departure()}, asyncio.sleep(60)))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_cancellation_from_outside_goes_first() -> None:
    departure = Departure()
    running = asyncio.create_task(while_connected({KEY: departure}, asyncio.sleep(60)))
    await asyncio.sleep(0)
    departure.tell()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
