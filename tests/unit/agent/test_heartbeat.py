"""The lag and the policy in a heartbeat."""

import asyncio
from collections.abc import Iterable

import pytest
from msgspec import UNSET
from structlog.testing import capture_logs

from slicebus.agent.act.heartbeat import Heartbeats, lag_s, told_of_policy
from slicebus.agent.state.policy import Policy
from slicebus.proto.errors import ForbiddenError, InvalidError, SlicebusError, UnavailableError
from slicebus.proto.messages import Flavor, Heard, Heartbeat, Message, Terms
from unit.agent.worker import Worker
from unit.kube.loop_time import START_S, LoopTime, settle

WAITING: dict[str, tuple[Iterable[float | None], float]] = {
    "nothing": ([], 0.0),
    "nothing anywhere": ([None, None], 0.0),
    "a job": ([8.0, None], 2.0),
    "an order": ([None, 4.0], 6.0),
    "both": ([8.0, 4.0], 6.0),
    "what has come just now": ([10.0], 0.0),
}


@pytest.mark.parametrize(("since", "expected"), WAITING.values(), ids=WAITING.keys())
def test_the_lag_is_the_age_of_the_oldest_pending_work(since: Iterable[float | None], expected: float) -> None:
    assert lag_s(since, now_s=10.0) == expected


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (None, UNSET),
        (Policy(own_namespace="slicebus-agent", create_as="jobs"), {}),
        (
            Policy(ingress=True, label_prefixes=("team.example.com/",)),
            {"ingress": True, "labelPrefixes": ["team.example.com/"]},
        ),
        (Policy(service_names=None), {"serviceNames": None}),
        (Policy(toleration_keys=tuple(f"example.com/{number}" for number in range(1000))), UNSET),
    ],
    ids=["not read yet", "default", "rules", "everything", "too long"],
)
def test_what_is_told_of_a_policy(policy: Policy | None, told: object) -> None:
    assert told_of_policy(policy) == told


@pytest.mark.parametrize(
    "error", [UnavailableError("no connection"), InvalidError("more than the limit")], ids=["away", "too large"]
)
async def test_a_heartbeat_that_cannot_be_published_is_one_line(
    worker: Worker, loop_time: LoopTime, error: SlicebusError
) -> None:
    away = [True, True, True, False, True]

    async def publish(_: Message) -> None:
        if away.pop(0):
            raise error

    heartbeats = Heartbeats(
        worker.store,
        worker.fence,
        publish=publish,
        requeue=worker.queue.add,
        waiting_since=lambda: (),
        lacking=dict,
        additions=lambda: ({}, {}),
        interval_s=10.0,
    )
    with capture_logs() as lines:
        running = asyncio.create_task(heartbeats.run())
        await settle()
        for _ in range(4):
            await loop_time.advance(10.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert not away
    assert [line["event"] for line in lines] == ["heartbeat.failed"] * 2, "one for each time that it goes"


async def test_each_heartbeat_has_the_lag(worker: Worker, loop_time: LoopTime) -> None:
    beats: list[Heartbeat] = []
    waiting: list[float | None] = [None, START_S + 3.0]

    async def publish(message: Message) -> None:
        assert isinstance(message, Heartbeat)
        beats.append(message)

    heartbeats = Heartbeats(
        worker.store,
        worker.fence,
        publish=publish,
        requeue=worker.queue.add,
        waiting_since=lambda: waiting,
        lacking=lambda: {"team": "NotFound"},
        additions=lambda: ({"team": {"cpu": "4"}}, {"kata": {"cpu": "250m"}}),
        interval_s=10.0,
    )
    await loop_time.advance(5.0)
    running = asyncio.create_task(heartbeats.run())
    await settle()
    await loop_time.advance(10.0)
    waiting[1] = None
    await loop_time.advance(10.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [beat.lag_s for beat in beats] == [2.0, 12.0, 0.0]
    assert all(beat.container_defaults == {"team": {"cpu": "4"}} for beat in beats)
    assert all(beat.pod_overheads == {"kata": {"cpu": "250m"}} for beat in beats)


async def test_a_fence_that_cannot_be_stored_leaves_the_one_before_in_force(
    worker: Worker, loop_time: LoopTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manager hears the cluster all the same: without that no pod would start until somebody gives the right
    back."""

    async def refuse(*_: object, **__: object) -> None:
        raise ForbiddenError("403: a policy denies it")

    heartbeats = Heartbeats(
        worker.store,
        worker.fence,
        publish=refuse,
        requeue=worker.queue.add,
        waiting_since=lambda: (),
        lacking=dict,
        additions=lambda: ({}, {}),
        interval_s=10.0,
    )
    await worker.fence.keep(30.0)
    assert worker.fence.closed
    monkeypatch.setattr(worker.client, "create", refuse)
    heard = Heard(epoch=3, said_s=asyncio.get_running_loop().time())
    with pytest.raises(ForbiddenError):
        await heartbeats.accept(Terms(version="2", fence_s=60.0, heard=heard))
    assert (worker.fence.seconds, worker.fence.closed) == (30.0, False)


async def test_a_fence_that_cannot_be_stored_keeps_no_flavor_from_being_reported(
    worker: Worker, loop_time: LoopTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is not confirmed before the fence is kept: without a fence in the terms they would not come again."""

    async def refuse(*_: object, **__: object) -> None:
        raise ForbiddenError("403: a policy denies it")

    beats: list[Heartbeat] = []

    async def publish(message: Message) -> None:
        assert isinstance(message, Heartbeat)
        beats.append(message)

    heartbeats = Heartbeats(
        worker.store,
        worker.fence,
        publish=publish,
        requeue=worker.queue.add,
        waiting_since=lambda: (),
        lacking=dict,
        additions=lambda: ({}, {}),
        interval_s=10.0,
    )
    terms = Terms(version="2", flavors=[Flavor(name="spot")], fence_s=60.0)
    with monkeypatch.context() as refusing:
        refusing.setattr(worker.client, "create", refuse)
        with pytest.raises(ForbiddenError):
            await heartbeats.accept(terms)
    running = asyncio.create_task(heartbeats.run())
    await settle()
    await heartbeats.accept(terms)
    await settle()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [(beat.terms, [*beat.capacity]) for beat in beats] == [(UNSET, ["", "spot"]), ("2", ["", "spot"])]
