"""Turns between those who wait: nobody waits for somebody else's messages, whatever these are."""

import asyncio
from collections import Counter

from slicebus.bus.turns import Pace, Turns

MIB = 1024**2


class Door:
    """Handlers that hold their turn until they are let go, and the order in which they got it."""

    def __init__(self, workers: int, *, most_each: int, most_bytes: int = 100 * MIB) -> None:
        self.turns = Turns(workers, most_each=most_each, most_bytes=most_bytes)
        self.got: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._go: list[asyncio.Event] = []

    async def come(self, owner: str, size: int = 100, *, times: int = 1) -> None:
        for _ in range(times):
            self.tasks.append(asyncio.create_task(self._hold(owner, size)))
        await settle()

    async def let_go(self, count: int = 1) -> None:
        for _ in range(count):
            self._go.pop(0).set()
            await settle()

    async def end(self) -> None:
        while self._go:
            await self.let_go()
        await asyncio.gather(*self.tasks)

    async def _hold(self, owner: str, size: int) -> None:
        async with self.turns.take(owner, size):
            self.got.append(owner)
            go = asyncio.Event()
            self._go.append(go)
            await go.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_that_has_sent_much_waits_for_itself() -> None:
    door = Door(2, most_each=2)
    await door.come("thief", times=50)
    await door.come("east")
    await door.come("west")
    assert door.got == ["thief", "thief"]
    await door.let_go(2)
    assert door.got[2:] == ["east", "west"], "each has had less than the thief"
    await door.end()
    assert Counter(door.got) == {"thief": 50, "east": 1, "west": 1}


async def test_large_messages_count_for_more_turns() -> None:
    door = Door(1, most_each=1)
    await door.come("thief", MIB, times=10)
    await door.come("east", times=10)
    await door.let_go(10)
    assert door.got == ["thief", *["east"] * 10]
    await door.end()


async def test_nobody_has_more_than_a_part_of_the_workers() -> None:
    door = Door(8, most_each=2)
    await door.come("thief", times=50)
    assert door.got == ["thief"] * 2, "although six are free"
    await door.come("east", times=3)
    assert door.got[2:] == ["east"] * 2
    await door.end()


async def test_bytes_are_bounded_and_what_is_larger_than_all_of_them_comes_alone() -> None:
    door = Door(8, most_each=8, most_bytes=10 * MIB)
    await door.come("east", 6 * MIB)
    await door.come("west", 6 * MIB)
    assert door.got == ["east"]
    await door.come("north", 50 * MIB)
    await door.let_go()
    assert door.got == ["east", "west"]
    await door.let_go()
    assert door.got[-1] == "north"
    await door.end()


async def test_one_who_comes_late_has_no_right_to_all_that_the_others_have_had() -> None:
    door = Door(1, most_each=1)
    await door.come("east", times=5)
    await door.let_go(3)
    await door.come("west", times=5)
    await door.let_go(4)
    assert Counter(door.got[4:8]) == {"west": 3, "east": 1}
    await door.end()


async def test_whoever_is_cancelled_leaves_its_place_to_the_others() -> None:
    door = Door(1, most_each=1)
    await door.come("east")
    await door.come("west")
    await door.come("north")
    door.tasks[1].cancel()
    await settle()
    await door.let_go()
    assert door.got == ["east", "north"]
    door.tasks[2].cancel()
    await settle()
    await door.come("south")
    assert door.got[-1] == "south"
    door.tasks.pop(1), door.tasks.pop(1)
    door._go.pop(0)
    await door.end()


async def test_nothing_is_remembered_of_those_who_have_gone() -> None:
    turns = Turns(2, most_each=1, most_bytes=MIB)
    for number in range(100):
        async with turns.take(f"cluster-{number}", 10):
            pass
    assert (turns._had, turns._held, turns._waiting) == ({}, {}, {})


async def test_large_messages_pass_one_by_one_in_turns_of_their_owners() -> None:
    pace, passed = Pace(large_bytes=1000, bytes_s=100_000), list[str]()

    async def come(owner: str, size: int) -> None:
        await pace.keep(owner, size)
        passed.append(owner)

    async with asyncio.TaskGroup() as group:
        for owner, size in [*[("thief", 2000)] * 5, ("west", 1000), ("east", 999)]:
            group.create_task(come(owner, size))
            await settle()
    assert passed[0] == "east", "a usual one waits for nobody"
    assert passed[1:3] == ["thief", "west"]
    assert passed[3:] == ["thief"] * 4


async def test_large_messages_pass_no_faster_than_their_bytes() -> None:
    loop, pace = asyncio.get_running_loop(), Pace(large_bytes=1000, bytes_s=100_000)
    began = loop.time()
    await asyncio.gather(*(pace.keep("thief", 2000) for _ in range(5)))
    assert loop.time() - began >= 0.1


async def test_one_that_gives_up_its_wait_holds_nobody_up() -> None:
    pace = Pace(large_bytes=1000, bytes_s=100_000)
    first = asyncio.create_task(pace.keep("thief", 1_000_000_000))
    await settle()
    second = asyncio.create_task(pace.keep("east", 1000))
    await settle()
    first.cancel()
    await second
    assert first.cancelled()
