"""The guarantees of the work queue: a key runs once at a time, keys run concurrently, failures delay no other key."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.testing import capture_logs

from slicebus.kube.failures import error_of
from slicebus.kube.workqueue import WorkQueue
from slicebus.proto.errors import (
    AlreadyExistsError,
    ConflictError,
    DeadReason,
    DecisionError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ProtocolError,
    ThrottledError,
    UnavailableError,
    WebhookError,
)
from unit.kube.loop_time import START_S, LoopTime, settle


class Handler:
    """Notes every call; waits at the gate of a key where there is one; raises what is due."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.at: list[float] = []
        self.active: list[str] = []
        self.most_active = 0
        self.gates: dict[str, asyncio.Event] = {}
        self.errors: dict[str, list[Exception]] = {}

    def hold(self, key: str) -> asyncio.Event:
        self.gates[key] = asyncio.Event()
        return self.gates[key]

    async def __call__(self, key: str) -> None:
        assert key not in self.active, f"{key} is handled twice at once"
        self.calls.append(key)
        self.at.append(round(asyncio.get_running_loop().time() - START_S, 6))
        self.active.append(key)
        self.most_active = max(self.most_active, len(self.active))
        try:
            if key in self.gates:
                await self.gates[key].wait()
            if self.errors.get(key):
                raise self.errors[key].pop(0)
        finally:
            self.active.remove(key)


@asynccontextmanager
async def working(queue: WorkQueue[str], handler: Handler, *, workers: int = 4) -> AsyncIterator[None]:
    running = asyncio.create_task(queue.run(handler, workers=workers))
    try:
        await settle()
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until_idle(queue: WorkQueue[str], *, step_s: float = 0.001) -> None:
    """Time leaps over the pauses."""
    while not queue.idle:  # noqa: ASYNC110 the queue has no need for an event that only tests would wait for
        await asyncio.sleep(step_s)


async def test_keys_are_handled_in_the_order_in_which_they_were_added(loop_time: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    for key in ("c", "a", "b", "a"):
        queue.add(key)
    async with working(queue, handler, workers=1):
        assert handler.calls == ["c", "a", "b"]
        assert queue.idle


async def test_handlers_that_wait_for_nothing_let_other_tasks_go_on(loop_time: LoopTime) -> None:
    """One that kept the loop for all keys would keep the role from renewing its Lease."""
    queue, before_others = WorkQueue[int]("test"), list[int]()
    for key in range(50):
        queue.add(key)

    async def handler(key: int) -> None:
        loop_time.now += 0.01
        handled.append(key)

    handled = list[int]()
    running = asyncio.create_task(queue.run(handler, workers=4))
    while len(handled) < 50:
        await asyncio.sleep(0)
        before_others.append(len(handled))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    most = max(after - before for before, after in pairwise([0, *before_others]))
    assert 1 < most <= 6


async def test_handlers_that_take_no_time_are_not_held_up(loop_time: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    for key in range(50):
        queue.add(str(key))
    running = asyncio.create_task(queue.run(handler, workers=1))
    await settle(3)
    assert len(handler.calls) == 50
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_goes_first_is_handled_before_all_others_in_its_order(loop_time: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    for key in ("a", "b", "c"):
        queue.add(key)
    for key in ("c", "d", "c"):
        queue.add(key, first=True)
    queue.add("d")
    async with working(queue, handler, workers=1):
        assert handler.calls == ["c", "d", "a", "b"]
        assert queue.idle


async def test_what_goes_first_needs_no_worker_of_the_others(loop_time: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    gates = [handler.hold(key) for key in ("a", "b")]
    running = asyncio.create_task(queue.run(handler, workers=2, first_workers=1))
    for key in ("a", "b", "c", "d"):
        queue.add(key)
    await settle()
    assert handler.calls == ["a", "b"]
    for key in ("d", "e"):
        queue.add(key, first=True)
    await settle()
    assert handler.calls == ["a", "b", "d", "e"]
    for gate in gates:
        gate.set()
    await settle()
    assert handler.calls == ["a", "b", "d", "e", "c"]
    assert queue.idle
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_goes_first_does_so_after_the_call_that_it_came_in(loop_time: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    gate = handler.hold("a")
    async with working(queue, handler, workers=1):
        queue.add("a")
        await settle()
        queue.add("b")
        queue.add("a", first=True)
        gate.set()
        await settle()
        assert handler.calls == ["a", "a", "b"]
        queue.add("c")
        queue.add("a")
        await settle()
        assert handler.calls == ["a", "a", "b", "c", "a"]


async def test_a_burst_while_a_key_is_handled_costs_one_more_call(loop_time: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    gate = handler.hold("a")
    async with working(queue, handler):
        queue.add("a")
        await settle()
        for _ in range(100):
            queue.add("a")
        await settle()
        assert handler.calls == ["a"]
        gate.set()
        await settle()
        assert handler.calls == ["a", "a"]
        assert handler.most_active == 1


async def test_a_change_that_the_handler_has_seen_costs_no_further_call(loop_time: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    gate = handler.hold("a")
    async with working(queue, handler):
        for key in ("a", "a", "b"):
            queue.add(key)
            await settle()
        queue.seen("a")
        gate.set()
        await settle()
        assert handler.calls == ["a", "b"]
        queue.seen("a")
        queue.add("a")
        await settle()
        assert handler.calls == ["a", "b", "a"]


async def test_keys_are_handled_concurrently_up_to_the_number_of_workers(loop_time: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    gates = [handler.hold(key) for key in "abcde"]
    async with working(queue, handler, workers=3):
        for key in "abcde":
            queue.add(key)
        await settle()
        assert handler.active == ["a", "b", "c"]
        gates[1].set()
        await settle()
        assert handler.active == ["a", "c", "d"]
        for gate in gates:
            gate.set()
    assert handler.most_active == 3


async def test_keys_that_hang_leave_their_workers_to_others(jumping: LoopTime) -> None:
    """Each worker waited for its own: a webhook for one namespace that hung held up every job."""
    queue, handler = WorkQueue[str]("test"), Handler()
    hanging = [handler.hold(key) for key in "ab"]
    async with working(queue, handler, workers=2):
        for key in "abc":
            queue.add(key)
        await asyncio.sleep(0.5)
        assert handler.active == ["a", "b"]
        await asyncio.sleep(1)
        queue.add("d")
        queue.add("a")
        await asyncio.sleep(0)
        await settle()
        assert (handler.calls, handler.active) == (["a", "b", "c", "d"], ["a", "b"])
        for gate in hanging:
            gate.set()
        await settle()
        assert handler.calls[4:] == ["a"], "it was added meanwhile"
        for key in "efg":
            handler.hold(key)
            queue.add(key)
        await settle()
        assert handler.active == ["e", "f"], "there are as many workers as before"


async def test_a_stuck_key_delays_no_other(loop_time: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.hold("stuck")
    async with working(queue, handler, workers=2):
        queue.add("stuck")
        await settle()
        for number in range(50):
            queue.add("stuck")
            queue.add(f"key-{number}")
            await settle()
            assert handler.calls[-1] == f"key-{number}"
        assert handler.calls.count("stuck") == 1


async def test_a_key_that_always_fails_delays_no_other(jumping: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.errors["bad"] = [UnavailableError("down")] * 8
    async with working(queue, handler, workers=1):
        queue.add("bad")
        for number in range(20):
            queue.add(f"key-{number}")
        await settle(100)
        assert handler.calls[:21] == ["bad", *(f"key-{number}" for number in range(20))]
        await until_idle(queue)
    assert handler.calls.count("bad") == 9


RETRIED = [UnavailableError("503"), ThrottledError("429"), ConflictError("409"), AlreadyExistsError("409")]
REFUSED = [NotFoundError("404"), ForbiddenError("403"), InvalidError("422"), ProtocolError(DeadReason.REFUSED, "no")]


@pytest.mark.parametrize("error", RETRIED, ids=lambda error: type(error).__name__)
async def test_a_transient_error_is_retried_after_a_growing_pause(jumping: LoopTime, error: Exception) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.errors["a"] = [error] * 5
    async with working(queue, handler):
        queue.add("a")
        await until_idle(queue)
    assert handler.at == [0.0, 0.02, 0.06, 0.14, 0.3, 0.62]


async def test_a_key_waits_as_long_as_the_server_asks_for(jumping: LoopTime) -> None:
    queue, handler, error = WorkQueue[str]("test"), Handler(), ThrottledError("429")
    error.retry_after_s = 5.0
    handler.errors["a"] = [error, ThrottledError("429")]
    async with working(queue, handler):
        queue.add("a")
        await until_idle(queue)
    assert handler.at == [0.0, 5.0, 5.04]


@pytest.mark.parametrize("error", REFUSED, ids=lambda error: type(error).__name__)
async def test_a_permanent_error_is_retried_slowly_and_said(jumping: LoopTime, error: Exception) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.errors["a"] = [error] * 8
    async with working(queue, handler):
        queue.add("a")
        await settle()
        assert queue.refused == {"a": str(error)}
        await until_idle(queue, step_s=0.5)
        assert not queue.refused
    assert [after - before for before, after in pairwise(handler.at)] == pytest.approx(
        [2, 4, 8, 16, 32, 64, 80, 80], abs=0.5
    )


FAILS = {"500": error_of(500, b"{}"), "a webhook": WebhookError("500: failed calling webhook")}


@pytest.mark.parametrize("error", FAILS.values(), ids=FAILS.keys())
async def test_a_key_at_which_the_server_fails_for_long_is_said(jumping: LoopTime, error: Exception) -> None:
    """It is tried again as soon as before: nobody knows for how long the server fails."""
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.errors = {"a": [error] * 1200, "b": [UnavailableError("no connection")] * 1200}
    async with working(queue, handler):
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(15)
        assert not queue.refused, "for a moment"
        await asyncio.sleep(100)
        assert queue.refused == {"a": str(error)}, "that the server is away is told of the role"
        handler.errors.clear()
        await until_idle(queue, step_s=30)
        assert not queue.refused


async def test_a_refused_key_is_handled_at_once_when_it_changes(jumping: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.errors["a"] = [ForbiddenError("403")] * 4
    async with working(queue, handler):
        queue.add("a")
        await asyncio.sleep(20)
        before = len(handler.calls)
        queue.add("a")
        await settle()
        assert len(handler.calls) == before + 1


async def test_a_transient_error_after_a_permanent_one_is_no_refusal(jumping: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.errors["a"] = [ForbiddenError("403"), UnavailableError("503"), UnavailableError("503")]
    async with working(queue, handler):
        queue.add("a")
        await asyncio.sleep(2.01)
        assert not queue.refused
        await until_idle(queue)
    assert handler.at[-1] < 3


async def test_a_success_makes_the_next_pause_short_again(jumping: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.errors["a"] = [UnavailableError("down")] * 6
    async with working(queue, handler):
        queue.add("a")
        await until_idle(queue)
        handler.errors["a"] = [UnavailableError("down")]
        queue.add("a")
        await until_idle(queue)
    assert handler.at[-1] - handler.at[-2] == pytest.approx(0.02)


async def test_pauses_end_at_a_minute_however_long_an_outage_lasts(jumping: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.errors["a"] = [UnavailableError("down")] * 1200
    async with working(queue, handler):
        queue.add("a")
        await until_idle(queue, step_s=30)
    assert len(handler.calls) == 1201
    assert handler.at[-1] - handler.at[-2] == pytest.approx(60.0)


async def test_a_programming_error_ends_the_queue(loop_time: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.errors["a"] = [KeyError("a bug")]
    queue.add("a")
    with pytest.raises(ExceptionGroup) as raised:
        await queue.run(handler, workers=2)
    assert raised.group_contains(KeyError)


Act = Callable[[WorkQueue[str]], None]
STATES: dict[str, list[Act]] = {
    "unknown": [],
    "waiting": [lambda queue: queue.add("a")],
    "due in 1 s": [lambda queue: queue.add_after("a", 1.0)],
    "due in 9 s": [lambda queue: queue.add_after("a", 9.0)],
}
EVENTS: dict[str, Act] = {
    "add": lambda queue: queue.add("a"),
    "add after 5 s": lambda queue: queue.add_after("a", 5.0),
}
WHEN: dict[tuple[str, str], list[float]] = {
    ("unknown", "add"): [0.0],
    ("unknown", "add after 5 s"): [5.0],
    ("waiting", "add"): [0.0],
    ("waiting", "add after 5 s"): [0.0, 5.0],
    ("due in 1 s", "add"): [0.0],
    ("due in 1 s", "add after 5 s"): [1.0],
    ("due in 9 s", "add"): [0.0],
    ("due in 9 s", "add after 5 s"): [5.0],
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
async def test_when_a_key_is_handled(jumping: LoopTime, state: str, event: str) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    for act in (*STATES[state], EVENTS[event]):
        act(queue)
    async with working(queue, handler):
        await until_idle(queue, step_s=0.5)
    assert handler.at == WHEN[state, event]


async def test_a_later_delayed_add_does_not_put_off_a_retry(jumping: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.errors["a"] = [ConflictError("409")]
    async with working(queue, handler):
        queue.add("a")
        await settle()
        queue.add_after("a", 30.0)
        await until_idle(queue)
    assert handler.at == [0.0, 0.02]


async def test_cancelling_leaves_no_timer_behind(loop_time: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    async with working(queue, handler):
        queue.add_after("a", 5.0)
    await loop_time.advance(10.0)
    assert handler.calls == []
    assert queue.idle


class TestDueSince:
    """Since when the oldest key has been due, in seconds after the beginning."""

    @staticmethod
    def since_s(queue: WorkQueue[str]) -> float | None:
        return None if queue.due_since_s is None else round(queue.due_since_s - START_S, 6)

    async def test_due_since_is_that_of_the_oldest_key_that_waits_or_is_handled(self, loop_time: LoopTime) -> None:
        queue, handler = WorkQueue[str]("test"), Handler()
        gates = {key: handler.hold(key) for key in "ab"}
        assert self.since_s(queue) is None
        async with working(queue, handler, workers=1):
            for key in "aba":
                queue.add(key)
                await loop_time.advance(0.3)
            assert handler.active == ["a"]
            assert self.since_s(queue) == 0.0
            gates["a"].set()
            await settle()
            assert self.since_s(queue) == 0.3, "b has waited for the worker"
            gates["b"].set()
            await settle()
            assert self.since_s(queue) is None

    async def test_due_since_of_a_key_that_was_added_while_it_was_handled(self, loop_time: LoopTime) -> None:
        queue, handler = WorkQueue[str]("test"), Handler()
        gate = handler.hold("a")
        async with working(queue, handler):
            for _ in range(3):
                queue.add("a")
                await loop_time.advance(1.0)
            gate.set()
            del handler.gates["a"]
            gate = handler.hold("a")
            await settle()
            assert self.since_s(queue) == 1.0
            gate.set()
            await settle()
            assert self.since_s(queue) is None

    async def test_a_key_that_fails_is_due_until_it_does_not(self, jumping: LoopTime) -> None:
        queue, handler = WorkQueue[str]("test"), Handler()
        handler.errors["a"] = [UnavailableError("down")] * 8
        async with working(queue, handler):
            queue.add("a")
            await asyncio.sleep(1.0)
            queue.add("a")
            await asyncio.sleep(1.0)
            assert self.since_s(queue) == 0.0
            await until_idle(queue)
            assert self.since_s(queue) is None

    async def test_a_key_that_cannot_be_handled_is_not_due(self, jumping: LoopTime) -> None:
        queue, handler = WorkQueue[str]("test"), Handler()
        handler.errors["a"] = [InvalidError("422")] * 3
        async with working(queue, handler):
            queue.add("a")
            await asyncio.sleep(1.0)
            assert queue.refused
            assert self.since_s(queue) is None
            await until_idle(queue)
            assert self.since_s(queue) is None

    async def test_a_delayed_add_is_due_when_its_time_comes(self, loop_time: LoopTime) -> None:
        queue = WorkQueue[str]("test")
        queue.add_after("a", 5.0)
        await loop_time.advance(4.0)
        assert self.since_s(queue) is None
        await loop_time.advance(3.0)
        await loop_time.advance(3.0)
        assert self.since_s(queue) == 7.0


def failed(digest: str = "d1") -> DecisionError:
    return DecisionError("decide", digest, "KeyError")


async def test_a_key_whose_decision_raises_is_set_aside_and_delays_no_other(jumping: LoopTime) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.errors["a"] = [failed()] * 3
    queue.add("a")
    async with working(queue, handler):
        queue.add("b")
        await settle()
        assert handler.calls == ["a", "b"]
        assert queue.set_aside == {"a": "d1"}
        assert queue.due_since_s is None, "it counts as no delay"
        await until_idle(queue, step_s=0.5)
    assert handler.calls == ["a", "b", "a", "a", "a"]
    assert queue.set_aside == {}
    assert handler.at[-1] < 30


async def test_a_key_that_is_set_aside_is_tried_again_when_it_changes_and_at_least_every_ten_minutes(
    jumping: LoopTime,
) -> None:
    queue, handler = WorkQueue[str]("test"), Handler()
    handler.errors["a"] = [failed()] * 40
    queue.add("a")
    async with working(queue, handler):
        await settle()
        queue.add("a")
        await settle()
        assert handler.calls == ["a", "a"]
        while handler.errors["a"]:  # noqa: ASYNC110 time jumps
            await asyncio.sleep(1)
        pauses = [later - earlier for earlier, later in pairwise(handler.at)]
        assert max(pauses) <= 900
        assert pauses[-1] > 300
        await until_idle(queue, step_s=1)
    assert queue.set_aside == {}


async def test_what_is_logged_about_a_key_is_logged_in_its_context(loop_time: LoopTime) -> None:
    queue: WorkQueue[str] = WorkQueue("test", logged=lambda key: bound_contextvars(correlation=f"chain-{key}"))
    handler = Handler()
    handler.errors = {"a": [UnavailableError("away")], "b": [ForbiddenError("no")]}
    with capture_logs(processors=[merge_contextvars]) as lines:
        async with working(queue, handler):
            for key in ("a", "b", "c"):
                queue.add(key)
            await settle()
    assert {(line["event"], line["correlation"]) for line in lines} == {
        ("workqueue.retry", "chain-a"),
        ("workqueue.refused", "chain-b"),
    }
