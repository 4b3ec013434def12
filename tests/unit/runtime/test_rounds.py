"""Every key comes once in each round, evenly over its time."""

import asyncio

import pytest

from slicebus.runtime.rounds import go_round
from unit.kube.loop_time import LoopTime


@pytest.mark.parametrize(("jobs", "most"), [(0, 0), (1, 1), (7, 1), (240, 2), (50_000, 417)])
async def test_every_key_comes_in_each_round_and_never_in_a_burst(jumping: LoopTime, jobs: int, most: int) -> None:
    added: list[tuple[float, int]] = []
    clock = asyncio.get_running_loop().time
    began = clock()
    keys = [*range(jobs), *range(jobs // 2)]
    task = asyncio.create_task(go_round(lambda: keys, lambda key: added.append((clock(), key)), round_s=600.0))
    await asyncio.sleep(1201)
    task.cancel()
    assert sorted(key for at, key in added if at - began <= 600.5) == list(range(jobs))
    assert len(added) == 2 * jobs
    moments = [at for at, _ in added]
    assert max((moments.count(at) for at in dict.fromkeys(moments)), default=0) <= most


async def test_a_key_that_comes_later_is_of_the_next_round(jumping: LoopTime) -> None:
    keys, added = ["a"], list[str]()
    task = asyncio.create_task(go_round(lambda: keys, added.append, round_s=2.0))
    await asyncio.sleep(1)
    keys.append("b")
    await asyncio.sleep(2)
    assert added == ["a"]
    await asyncio.sleep(2)
    assert added == ["a", "a", "b"]
    task.cancel()
