"""Which ends of a task a group takes for the end that somebody asked for."""

import asyncio
import inspect

import pytest

from slicebus.ambient.cancellation import TaskGroup
from slicebus.proto.errors import UnavailableError


async def _ended_by_a_library() -> None:
    """Waits for a future that somebody else cancels, as libraries' readers do with those of their callers."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.cancel)
    await future


async def test_a_task_that_nobody_cancelled_ends_the_group_with_its_name() -> None:
    async def group_of_two() -> None:
        async with TaskGroup() as group:
            group.create_task(_ended_by_a_library(), name="watch:jobs")
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raised:
        await group_of_two()
    [error] = raised.value.exceptions
    assert isinstance(error, UnavailableError)
    assert str(error) == "watch:jobs was cancelled by a library"


async def test_a_task_that_is_cancelled_ends_as_in_any_group() -> None:
    async with TaskGroup() as group:
        task = group.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()


async def test_a_task_that_is_cancelled_before_it_begins_closes_its_coroutine() -> None:
    work = asyncio.Event().wait()
    async with TaskGroup() as group:
        task = group.create_task(work)
        task.cancel()
    assert task.cancelled()
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def test_a_cancelled_group_ends_cancelled() -> None:
    async def owner() -> None:
        async with TaskGroup() as group:
            group.create_task(asyncio.Event().wait())

    task = asyncio.create_task(owner())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_returns_its_result() -> None:
    async with TaskGroup() as group:
        task = group.create_task(asyncio.sleep(0, "done"), name="quick")
    assert task.result() == "done"
    assert task.get_name() == "quick"
