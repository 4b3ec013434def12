"""The virtual clock, and programs that are stopped on it."""

import asyncio

import pytest

from simulation import loop


def test_time_leaps() -> None:
    async def sleeps() -> float:
        await asyncio.sleep(1e6)
        return asyncio.get_running_loop().time()

    assert loop.run(sleeps()) == pytest.approx(1e6)


def test_who_waits_for_nothing_is_stuck() -> None:
    async def waits() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(loop.Stuck):
        loop.run(waits())


@pytest.mark.parametrize("pause_s", [0.0, 1e-20], ids=["at once", "after less than the clock tells apart"])
def test_who_goes_on_without_time_is_stuck(pause_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_MANY_TURNS", 1000)

    def again() -> None:
        asyncio.get_running_loop().call_later(pause_s, again)

    async def spins() -> None:
        await asyncio.sleep(10)
        again()
        await asyncio.sleep(10)

    with pytest.raises(loop.Stuck, match="time stands still at 10"):
        loop.run(spins())


async def _stopped_between_an_answer_and_a_deadline() -> list[str]:
    virtual, program, happened = asyncio.get_running_loop(), loop.Program(), []
    assert isinstance(virtual, loop.VirtualLoop)
    answer: asyncio.Future[None] = virtual.create_future()

    async def asks() -> None:
        await answer
        happened.append(f"answered at {virtual.time():.0f}")

    async def hurries() -> None:
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(1000)
        except TimeoutError:
            happened.append(f"late at {virtual.time():.0f}")

    with loop.of(program):
        tasks = [asyncio.create_task(hurries()), asyncio.create_task(asks())]
    await asyncio.sleep(1)
    virtual.stop_program(program)
    await asyncio.sleep(10)
    answer.set_result(None)
    await asyncio.sleep(10)
    assert happened == []
    virtual.continue_program(program)
    await asyncio.gather(*tasks)
    return happened


def test_a_stopped_program_finds_its_answers_and_then_its_timers() -> None:
    assert loop.run(_stopped_between_an_answer_and_a_deadline()) == ["answered at 21", "late at 21"]


async def _cancelled_while_stopped() -> bool:
    virtual, program = asyncio.get_running_loop(), loop.Program()
    assert isinstance(virtual, loop.VirtualLoop)
    with loop.of(program):
        task = asyncio.create_task(asyncio.sleep(5))
    await asyncio.sleep(1)
    virtual.stop_program(program)
    task.cancel()
    await asyncio.sleep(60)
    virtual.continue_program(program)
    await asyncio.wait((task,))
    return task.cancelled()


def test_what_is_cancelled_while_stopped_ends_when_it_goes_on() -> None:
    assert loop.run(_cancelled_while_stopped())


async def _stopped_twice() -> float:
    virtual, program = asyncio.get_running_loop(), loop.Program()
    assert isinstance(virtual, loop.VirtualLoop)
    with loop.of(program):
        task = asyncio.create_task(asyncio.sleep(5))
    await asyncio.sleep(1)
    for _ in range(2):
        virtual.stop_program(program)
    await asyncio.sleep(60)
    virtual.continue_program(program)
    await task
    return virtual.time()


def test_a_program_that_is_stopped_twice_keeps_its_timers() -> None:
    assert loop.run(_stopped_twice()) == pytest.approx(61)
