"""Calls that are made again: for which errors, how long, and with which pauses."""

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable

import pytest

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.retries import repeated
from slicebus.proto.errors import ConflictError, InvalidError, SlicebusError, UnavailableError
from unit.kube.loop_time import LoopTime

WAIT = Backoff(first_s=1.0, most_s=6.0)


def failing(*errors: SlicebusError) -> tuple[Callable[[], Awaitable[int]], list[float]]:
    """A call that raises these errors, one each time, and the times at which it was made."""
    left, made = list(errors), list[float]()

    async def call() -> int:
        made.append(asyncio.get_running_loop().time())
        if left:
            raise left.pop(0)
        return 7

    return call, made


async def test_a_call_that_succeeds_is_made_once(jumping: LoopTime) -> None:
    call, made = failing()
    assert await repeated(call, on=UnavailableError, wait=WAIT) == 7
    assert len(made) == 1


async def test_it_is_made_again_after_growing_pauses(jumping: LoopTime) -> None:
    call, made = failing(UnavailableError("away"), ConflictError("changed"), UnavailableError("away"))
    assert await repeated(call, on=(UnavailableError, ConflictError), wait=WAIT) == 7
    pauses = [after - before for before, after in itertools.pairwise(made)]
    assert len(pauses) == 3
    assert all(first / 2 <= pause <= first * 1.5 for pause, first in zip(pauses, (1, 2, 4), strict=True))


def asking_to_wait(seconds: float) -> UnavailableError:
    error = UnavailableError("busy")
    error.retry_after_s = seconds
    return error


async def test_a_pause_is_no_shorter_than_the_server_asks_for(jumping: LoopTime) -> None:
    call, made = failing(asking_to_wait(20.0), asking_to_wait(0.1))
    assert await repeated(call, on=UnavailableError, wait=WAIT) == 7
    assert [after - before for before, after in itertools.pairwise(made)] == pytest.approx([20.0, 2.0])


async def test_a_pause_that_the_server_asks_for_ends_at_the_deadline(jumping: LoopTime) -> None:
    call, made = failing(asking_to_wait(30.0), asking_to_wait(30.0))
    began = asyncio.get_running_loop().time()
    with pytest.raises(UnavailableError):
        await repeated(call, on=UnavailableError, wait=WAIT, ends_at_s=began + 10.0)
    assert made == pytest.approx([began, began + 10.0])


async def test_other_errors_are_raised_at_once(jumping: LoopTime) -> None:
    call, made = failing(UnavailableError("away"), InvalidError("no"))
    with pytest.raises(InvalidError):
        await repeated(call, on=UnavailableError, wait=WAIT)
    assert len(made) == 2


@pytest.mark.parametrize(("ends_at_s", "fewest", "most"), [(0.0, 1, 1), (10.0, 3, 9), (math.inf, 21, 21)])
async def test_its_last_error_is_raised_when_the_time_is_over(
    jumping: LoopTime, ends_at_s: float, fewest: int, most: int
) -> None:
    call, made = failing(*[UnavailableError("away")] * 20)
    ends_at_s += asyncio.get_running_loop().time()
    try:
        assert await repeated(call, on=UnavailableError, wait=WAIT, ends_at_s=ends_at_s) == 7
    except UnavailableError:
        assert made[-1] >= ends_at_s
    assert fewest <= len(made) <= most
