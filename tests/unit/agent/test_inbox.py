"""Orders over an in-process bus: who may give them, what they change on the cluster, what is reported."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from slicebus.agent.state import annotations
from slicebus.ambient.lasting_failures import LastingFailures, Patience
from slicebus.bus.contract import Subscription
from slicebus.bus.dead_letters.headers import DETAIL_HEADER, REASON_HEADER
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CONFIGMAPS, JOBS, PODS, Resource
from slicebus.proto.codec import encode
from slicebus.proto.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    PermanentError,
    SlicebusError,
    UnavailableError,
    WebhookError,
)
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    ClusterUid,
    Delete,
    Direction,
    JobPhase,
    Lane,
    Message,
    Pending,
    Refused,
    Relabel,
    Resync,
    Status,
    Suspend,
    Terms,
)
from slicebus.proto.topology import AGENT_DEAD, DOWN, Binding, Topology, agent_queue, agent_topology, routing_key
from slicebus.sandbox.bus import MemoryBus
from slicebus.slices.api import kueue
from support.waiting import eventually
from unit.agent.objects import EAST, EAST_UID, KEY, REF, a_job, a_pod, a_spec
from unit.agent.test_reconciler import plain
from unit.agent.worker import Worker, types
from unit.kube.servers import NAMESPACE


class Manager:
    """Gives orders, and waits until they are settled."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._broker = worker.broker
        self._broker.declare(agent_topology(EAST, EAST_UID))
        # What is for another cluster or for the manager comes here only by mistake.
        mistakes = (routing_key(EAST, Delete.type, OTHER_UID), routing_key(EAST, Applied.type))
        bound = tuple(Binding(DOWN, agent_queue(EAST, Lane.CONTROL, EAST_UID), key) for key in mistakes)
        self._broker.declare(Topology((), (), bound))

    async def order(
        self,
        *messages: Message,
        user: str = "manager",
        cluster: str = EAST,
        uid: ClusterUid = EAST_UID,
        epoch: int = 1,
        shard: int = 0,
        **changes: Any,
    ) -> None:
        issuer = Issuer(
            epoch=epoch, user=user, now=lambda: datetime.now(UTC), random=lambda count: b"\0" * count, shard=shard
        )
        bus = MemoryBus(self._broker, user=user)
        for message in messages:
            wire = encode(issuer.envelope(message, ClusterName(cluster), uid), message)
            addressee = uid if message.direction is Direction.DOWN else None
            wire = msgspec.structs.replace(wire, routing_key=routing_key(EAST, message.type, addressee), **changes)
            await bus.publish(DOWN, wire)
        while not self._settled():  # noqa: ASYNC110 a turn of the loop each, no time passes
            await asyncio.sleep(0)

    @property
    def dead(self) -> list[tuple[str, str]]:
        """Why messages are dead."""
        headers = [entry.message.headers for entry in self._broker.queues[AGENT_DEAD].ready]
        return [(each[REASON_HEADER], each[DETAIL_HEADER]) for each in headers]

    def _settled(self) -> bool:
        queues = [self._broker.queues[name] for name in self._worker.inbox.queues()]
        return not any(queue.ready or any(c.unsettled for c in queue.consumers) for queue in queues)


@asynccontextmanager
async def receiving(worker: Worker) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(worker.inbox.run(queue)) for queue in worker.inbox.queues()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def ending_agent(worker: Worker) -> AbstractAsyncContextManager[Subscription]:
    """An agent that takes an order and ends before it has acknowledged it."""
    queue = agent_queue(EAST, Lane.CONTROL, EAST_UID)
    return MemoryBus(worker.broker, user="east").subscribe(queue, prefetch=1)


@pytest.fixture
async def manager(worker: Worker) -> AsyncIterator[Manager]:
    made = Manager(worker)
    async with receiving(worker):
        yield made


OTHER_UID = ClusterUid("uid-of-another")


def relabel(version: int = 2, grant: int = 5) -> Relabel:
    return Relabel(job=REF, spec_version=version, from_workload="w1", to_workload="w2", granted={"main": grant})


FIRST = a_spec(1, parallelism=5)
NEXT_SLICE = a_spec(2, "w2", granted=5, parallelism=5)


async def standing(worker: Worker) -> tuple[Any, ...] | None:
    """Where the job stands: its slice, its version, what it was granted, whether it is suspended."""
    job = await worker.job()
    if job is None:
        return None
    return annotations.slice_of(job), annotations.spec_version(job), annotations.granted(job), job["spec"]["suspend"]


STORIES: dict[str, tuple[list[Message], tuple[Any, ...] | None, list[str]]] = {
    "a first spec": ([a_spec(1)], ("w1", 1, {"main": 1}, False), ["w1"]),
    "twice": ([a_spec(1), a_spec(1)], ("w1", 1, {"main": 1}, False), ["w1"]),
    "a scale-up": ([FIRST, NEXT_SLICE, relabel()], ("w2", 2, {"main": 5}, False), ["w2"]),
    "the relabel comes first": ([FIRST, relabel(), NEXT_SLICE], ("w2", 2, {"main": 5}, False), ["w2"]),
    "everything twice": (
        [FIRST, FIRST, NEXT_SLICE, relabel(), NEXT_SLICE, relabel(), FIRST],
        ("w2", 2, {"main": 5}, False),
        ["w2"],
    ),
    "the relabel is lost": ([FIRST, NEXT_SLICE], ("w1", 1, {"main": 1}, False), ["w1", "w2"]),
    "a scale-down in place": ([a_spec(1, granted=5), a_spec(2, granted=3)], ("w1", 2, {"main": 3}, False), ["w1"]),
    "suspended": ([a_spec(1), Suspend(job=REF, spec_version=2, workload="w1")], ("w1", 2, {}, True), ["w1"]),
    "suspended, and let on": (
        [a_spec(1), Suspend(job=REF, spec_version=2, workload="w1"), a_spec(3, granted=4)],
        ("w1", 3, {"main": 4}, False),
        ["w1"],
    ),
    "suspended late": (
        [a_spec(3, granted=4), Suspend(job=REF, spec_version=2, workload="w1")],
        ("w1", 3, {"main": 4}, False),
        ["w1"],
    ),
    "deleted": ([a_spec(1), Delete(job=REF, spec_version=2)], None, []),
    "deleted, and a late spec": ([a_spec(1), Delete(job=REF, spec_version=2), a_spec(1)], None, []),
    "deleted before it was created": ([Delete(job=REF, spec_version=2), a_spec(1), a_spec(2)], None, []),
    "deleted, and a late relabel": ([a_spec(1), Delete(job=REF, spec_version=3), relabel(2)], None, []),
    "deleted, and held again": (
        [a_spec(1), Delete(job=REF, spec_version=2), a_spec(3)],
        ("w1", 3, {"main": 1}, False),
        ["w1"],
    ),
    "deleted, held again, and the delete once more": (
        [a_spec(1), Delete(job=REF, spec_version=2), a_spec(3), Delete(job=REF, spec_version=2)],
        ("w1", 3, {"main": 1}, False),
        ["w1"],
    ),
}


@pytest.mark.parametrize(("messages", "expected", "copies"), STORIES.values(), ids=STORIES.keys())
async def test_a_scenario(
    worker: Worker, manager: Manager, messages: list[Message], expected: tuple[Any, ...] | None, copies: list[str]
) -> None:
    for message in messages:
        await manager.order(message)
        await worker.sync()
    assert await standing(worker) == expected
    assert sorted(await worker.copies()) == copies
    assert manager.dead == []


BEHIND: dict[str, tuple[list[Message], int]] = {
    "it holds the newest": ([a_spec(1), NEXT_SLICE, relabel(), a_spec(1)], 0),
    "it is suspended": ([a_spec(1), Suspend(job=REF, spec_version=2, workload="w1")], 0),
    "it cannot be made as ordered": ([a_spec(1), a_spec(2, "Not A Name")], 1),
    "it was deleted": ([a_spec(1), Delete(job=REF, spec_version=2), a_spec(1)], 0),
    "it was suspended before it was made": ([Suspend(job=REF, spec_version=2, workload="w1")], 0),
}


@pytest.mark.parametrize(("messages", "expected"), BEHIND.values(), ids=BEHIND.keys())
async def test_whether_a_job_is_out_of_sync(
    worker: Worker, manager: Manager, messages: list[Message], expected: int
) -> None:
    for message in messages:
        await manager.order(message)
        await worker.sync()
    assert worker.store.behind() == expected


async def test_a_tombstone_outlives_a_restart(worker: Worker, manager: Manager) -> None:
    await manager.order(a_spec(1), Delete(job=REF, spec_version=2))
    again = Worker(worker.client)
    await again.tombstones.load()
    await again.sync()
    successor = Manager(again)
    async with receiving(again):
        await successor.order(a_spec(1))
    assert await worker.job() is None


async def test_a_delete_ends_a_job_also_while_its_tombstone_is_refused(
    worker: Worker, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spec that had waited came after it, and made the job again."""
    patch = worker.client.patch

    async def not_of_config_maps(resource: Resource, *how: Any, **more: Any) -> Any:
        if resource == CONFIGMAPS:
            raise InvalidError("422")
        return await patch(resource, *how, **more)

    with monkeypatch.context() as patches:
        patches.setattr(worker.client, "patch", not_of_config_maps)
        await manager.order(Delete(job=REF, spec_version=2), a_spec(1))
        assert await worker.job() is None
    assert [type(message) for message in worker.published] == [Refused]
    await manager.order(Delete(job=REF, spec_version=2))
    assert not dict(worker.store.ends_ordered.items())
    await manager.order(a_spec(1))
    assert await worker.job() is None


async def test_a_suspension_of_an_unknown_job_is_answered_when_its_tombstone_can_be_stored(
    worker: Worker, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspend = Suspend(job=REF, spec_version=2, workload="w1", reason="Evicted", message="so it is")
    with monkeypatch.context() as patches:
        patches.setattr(worker.client, "patch", AsyncMock(side_effect=InvalidError("422")))
        await manager.order(suspend)
    await manager.order(suspend)
    assert [type(message) for message in worker.published] == [Refused]
    assert await worker.reconcile_job() == [Applied(job=REF, workload="", spec_version=2, deleted=True)]


async def test_an_end_is_not_reported_while_the_job_is_there(worker: Worker, manager: Manager) -> None:
    await manager.order(a_spec(1))
    await worker.client.patch(JOBS, "train", NAMESPACE, MergePatch({"metadata": {"finalizers": ["example.com/slow"]}}))
    await worker.sync()
    await manager.order(Delete(job=REF, spec_version=2))
    await worker.sync()
    worker.published.clear()
    await manager.order(a_spec(1))
    assert worker.published == []
    assert worker.requeued[-1] == KEY
    await worker.client.patch(JOBS, "train", NAMESPACE, MergePatch({"metadata": {"finalizers": None}}))
    await worker.sync()
    assert await worker.reconcile_job() == [Applied(job=REF, workload="", spec_version=2, deleted=True)]


async def test_what_is_applied_is_reported_and_its_job_requeued(worker: Worker, manager: Manager) -> None:
    await manager.order(a_spec(1))
    assert worker.published == [Applied(job=REF, workload="w1", spec_version=1)]
    assert worker.requeued == [KEY]


async def test_pods_start_before_their_order_is_reported(worker: Worker, manager: Manager) -> None:
    await manager.order(FIRST, NEXT_SLICE)
    pod = a_pod("train-1", gated=True)
    await worker.client.create(PODS, plain(pod | {"spec": pod["spec"] | {"nodeSelector": {"pool": "spot"}}}))
    await worker.sync()

    async def may_start() -> bool:
        pod = await worker.client.get(PODS, "train-1", NAMESPACE)
        return {"name": kueue.ELASTIC_GATE} not in pod["spec"]["schedulingGates"]

    worker.refuses = UnavailableError("the broker is away")
    assert not await may_start()
    ordering = asyncio.create_task(manager.order(relabel()))
    await eventually(may_start, "the pod may start")
    worker.published.clear()
    worker.refuses = None
    await ordering
    assert Applied(job=REF, workload="w2", spec_version=2) in worker.published


async def test_what_fails_as_pods_start_does_not_end_their_order(worker: Worker, manager: Manager) -> None:
    await manager.order(FIRST, NEXT_SLICE)
    worker.inbox._reconcile = AsyncMock(side_effect=InvalidError("a pod is refused"))
    worker.published.clear()
    await manager.order(relabel())
    assert worker.published == [Applied(job=REF, workload="w2", spec_version=2)]
    assert (manager.dead, worker.requeued[-1]) == ([], KEY)


async def test_a_job_that_was_there_before_is_left_alone_until_it_goes(worker: Worker, manager: Manager) -> None:
    theirs = await worker.client.create(JOBS, plain(a_job(7, ours=False)))
    for version in (1, 2):
        await manager.order(a_spec(version))
        [refused] = worker.published
        assert isinstance(refused, Refused)
        assert (refused.reason, refused.spec_version) == ("JobExists", version)
        assert await worker.job() == theirs
        worker.published.clear()
    await worker.client.delete(JOBS, "train", NAMESPACE)
    await manager.order(a_spec(2))
    assert await standing(worker) == ("w1", 2, {"main": 1}, False)


async def test_a_spec_that_the_server_refuses_is_reported_as_refused(worker: Worker, manager: Manager) -> None:
    bad = a_spec(1)
    bad.workload["metadata"]["name"] = "Not A Name"
    await manager.order(bad)
    [refused] = worker.published
    assert isinstance(refused, Refused)
    assert refused.reason == "Invalid"
    assert manager.dead == []


NOTICE = Pending(
    job=REF,
    workload="w2",
    worker_uid="u",
    worker_generation=2,
    wanted={"main": 5},
    reason="Pending",
    message="4 cpu short",
    since="2026-01-31T12:00:00Z",
)


async def test_a_notice_is_an_event_on_the_job(worker: Worker, manager: Manager) -> None:
    await manager.order(a_spec(1))
    await manager.order(NOTICE)
    [(name, event)] = worker.events
    assert (event["reason"], name) == ("Pending", "train")


async def test_a_notice_that_comes_again_after_a_newer_one_tells_nothing(worker: Worker, manager: Manager) -> None:
    await manager.order(a_spec(1))
    await manager.order(NOTICE, msgspec.structs.replace(NOTICE, message="request > maximum capacity"))
    await manager.order(msgspec.structs.replace(NOTICE, message="2 cpu short"))  # the first of its issuer
    notes = [event["note"] for _, event in worker.events]
    assert {note.rpartition(": ")[2] for note in notes} == {"4 cpu short", "request > maximum capacity"}


async def test_a_notice_of_another_shard_is_no_older_one(worker: Worker, manager: Manager) -> None:
    """Each shard of the manager has epochs of its own."""
    await manager.order(a_spec(1))
    await manager.order(NOTICE, epoch=9)
    await manager.order(msgspec.structs.replace(NOTICE, message="held"), epoch=5, shard=1)
    await manager.order(msgspec.structs.replace(NOTICE, message="late"), epoch=4, shard=1)
    notes = [event["note"] for _, event in worker.events]
    assert [note.rpartition(": ")[2] for note in notes] == ["4 cpu short", "held"]


async def test_the_shard_of_the_last_order_is_told_of_its_job(worker: Worker, manager: Manager) -> None:
    report = Status(job=REF, workload="w1", spec_version=1, phase=JobPhase.RUNNING)
    told = []
    for epoch, shard, order in ((5, 1, a_spec(1)), (5, 2, NOTICE), (9, 1, NOTICE), (8, 1, NOTICE), (2, 0, a_spec(2))):
        await manager.order(order, epoch=epoch, shard=shard)
        told.append(worker.addressees.of(report))
    await manager.order(a_spec(3), user="mallory", shard=1)
    assert [*told, worker.addressees.of(report)] == [1, 2, 1, 1, 0, 0]


async def test_the_manager_may_ask_for_the_inventory_or_for_statuses(worker: Worker, manager: Manager) -> None:
    await manager.order(a_spec(1))
    assert types(await worker.reconcile_job()) == ["status"]
    assert await worker.reconcile_job() == []
    await manager.order(Resync(reason="NoInventory"))
    assert (worker.inventory_requests, await worker.reconcile_job()) == (1, [])
    await manager.order(Resync(reason="StatusDiffers", jobs=[REF]))
    assert worker.inventory_requests == 1
    assert not worker.queue.idle
    assert types(await worker.reconcile_job()) == ["status"]


REFUSED: dict[str, tuple[Message, dict[str, Any], str, str]] = {
    "a report": (
        Applied(job=REF, workload="w1", spec_version=1),
        {},
        "unknown-type",
        "applied is not for an agent",
    ),
    "another user": (a_spec(1), {"user": "mallory"}, "wrong-user", "only 'manager' does"),
    "another cluster": (a_spec(1), {"cluster": "west"}, "malformed", "west"),
    "another cluster of the name": (
        Delete(job=REF, spec_version=1),
        {"uid": OTHER_UID},
        "wrong-cluster",
        "uid-of-east",
    ),
    "no JSON": (a_spec(1), {"body": b"{"}, "malformed", "not JSON"),
    "no shape": (Delete(job=REF, spec_version=1), {"body": b"{}"}, "malformed", "job"),
}


@pytest.mark.parametrize(("message", "how", "reason", "detail"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_message_that_may_not_be_carried_out_is_dead_lettered_with_its_reason(
    worker: Worker, manager: Manager, message: Message, how: dict[str, Any], reason: str, detail: str
) -> None:
    await manager.order(message, **how)
    [(published, text)] = manager.dead
    assert published == reason
    assert detail in text
    assert worker.requeued == []
    assert await worker.job() is None


async def test_a_relabel_of_a_foreign_job_is_refused(worker: Worker, manager: Manager) -> None:
    theirs = await worker.client.create(JOBS, plain(a_job(ours=False)))
    worker.store.cache_of(JOBS).put(theirs)
    await manager.order(relabel())
    [refused] = worker.published
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.workload, manager.dead) == ("JobExists", "w2", [])
    assert await worker.job() == theirs


POLICY = InvalidError('422: jobs "train" is forbidden: ValidatingAdmissionPolicy "frozen" denied request: frozen')
RIGHT = ForbiddenError('403: jobs "train" is forbidden')
SUSPEND = Suspend(job=REF, spec_version=2, workload="w1", reason="EvictedDueToPreempted")
ORDERS: dict[str, tuple[Message, str]] = {
    "a spec": (a_spec(2, parallelism=7), "w1"),
    "a relabel": (relabel(), "w2"),
    "a suspend": (SUSPEND, "w1"),
    "a delete": (Delete(job=REF, spec_version=2), ""),
}


def refuse_writes(worker: Worker, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """From now on the API server refuses every write."""

    async def refuse(*_: Any, **__: Any) -> Any:
        raise error

    for verb in ("create", "patch", "delete"):
        monkeypatch.setattr(worker.client, verb, refuse)


@pytest.mark.parametrize("error", [POLICY, RIGHT], ids=["a policy", "no right"])
@pytest.mark.parametrize(("order", "workload"), ORDERS.values(), ids=ORDERS.keys())
async def test_an_order_that_the_server_refuses_is_told_and_no_dead_letter(
    worker: Worker,
    manager: Manager,
    monkeypatch: pytest.MonkeyPatch,
    order: Message,
    workload: str,
    error: PermanentError,
) -> None:
    await manager.order(FIRST)
    await worker.sync()
    worker.published.clear()
    with monkeypatch.context() as refusing:
        refuse_writes(worker, refusing, error)
        await manager.order(order)
    [refused] = worker.published
    assert isinstance(refused, Refused)
    assert (refused.workload, refused.spec_version, refused.message) == (workload, 2, str(error))
    assert manager.dead == []
    worker.published.clear()
    await manager.order(order)
    assert not any(isinstance(message, Refused) for message in worker.published)


@pytest.mark.parametrize("is_moved", [False, True], ids=["before its relabel", "after its relabel"])
async def test_a_size_that_the_server_refuses_is_not_reported_by_the_relabel(
    worker: Worker, manager: Manager, monkeypatch: pytest.MonkeyPatch, is_moved: bool
) -> None:
    """The manager's next size comes with the next slice, and a webhook of the job's kind refuses it."""
    await manager.order(FIRST)
    spec, moves = a_spec(2, "w2", granted=7, parallelism=7), relabel(grant=7)
    orders = (moves, spec, moves) if is_moved else (spec, moves)
    patch = worker.client.patch

    async def refuse_sizes(resource: Any, name: Any, namespace: Any, body: Any, **how: Any) -> Any:
        if resource == JOBS and "parallelism" in str(body):
            raise POLICY
        return await patch(resource, name, namespace, body, **how)

    with monkeypatch.context() as refusing:
        refusing.setattr(worker.client, "patch", refuse_sizes)
        for order in orders:
            await manager.order(order)
            await worker.sync()
    assert [message for message in worker.published if isinstance(message, Refused)]
    assert not [message for message in worker.published if isinstance(message, Applied) and message.spec_version == 2]
    await manager.order(spec)
    assert (await worker.job())["spec"]["parallelism"] == 7
    applied = [message for message in worker.published if isinstance(message, Applied)]
    assert (applied[-1].workload, applied[-1].spec_version) == ("w2", 2)


async def test_a_notice_and_terms_that_the_server_refuses_are_no_dead_letters(
    worker: Worker, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    await manager.order(FIRST)
    await worker.sync()
    notice = Pending(
        job=REF,
        workload="w1",
        worker_uid="u",
        worker_generation=1,
        wanted={},
        reason="Pending",
        message="",
        since="2026-01-31T12:00:00Z",
    )
    monkeypatch.setattr(worker.inbox, "_terms", AsyncMock(side_effect=RIGHT))
    refuse_writes(worker, monkeypatch, RIGHT)
    await manager.order(notice, Terms(version="1"))
    assert manager.dead == []


UNKEPT: dict[str, SlicebusError] = {
    "a right is missing": ForbiddenError("403"),
    "a webhook is down": WebhookError("500: failed calling webhook"),
    "the server fails": UnavailableError("500"),
    "somebody else writes": ConflictError("409"),
}


@pytest.mark.parametrize("error", UNKEPT.values(), ids=UNKEPT.keys())
async def test_terms_that_cannot_be_kept_hold_up_no_orders_and_are_told_until_they_are(
    worker: Worker, manager: Manager, monkeypatch: pytest.MonkeyPatch, error: SlicebusError
) -> None:
    """They come again with each heartbeat. While they wait they would use up what the broker sends ahead."""
    keep = AsyncMock(side_effect=error)
    monkeypatch.setattr(worker.inbox, "_terms", keep)
    async with asyncio.timeout(5):
        await manager.order(Terms(version="1"), Terms(version="1"))
    assert keep.await_count == 2
    assert worker.inbox.unkept == {"ConfigMap slicebus-fence": str(error)}
    keep.side_effect = None
    await manager.order(Terms(version="1"))
    assert worker.inbox.unkept == {}


async def test_a_webhook_that_is_down_is_told_after_some_seconds(
    worker: Worker, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, down = asyncio.get_running_loop().time, WebhookError("500: failed calling webhook")
    began = clock()
    monkeypatch.setattr(worker.inbox, "_failures", LastingFailures(Patience(webhook_s=0.2, server_s=15.0)))
    with monkeypatch.context() as refusing:
        refuse_writes(worker, refusing, down)
        await manager.order(FIRST)
    [refused] = worker.published
    assert isinstance(refused, Refused)
    assert (refused.reason, manager.dead, clock() - began >= 0.2) == ("WebhookUnavailable", [], True)
    await manager.order(FIRST)
    assert await standing(worker) == ("w1", 1, {"main": 1}, False)


def failing() -> UnavailableError:
    """The answer of an API server that fails at one write."""
    error = UnavailableError("500: no space")
    error.is_answer = True
    return error


@pytest.mark.parametrize("error", [ConflictError("an earlier Job is still there"), failing()])
async def test_what_an_order_waits_for_is_told_after_a_while(
    worker: Worker, manager: Manager, monkeypatch: pytest.MonkeyPatch, error: SlicebusError
) -> None:
    monkeypatch.setattr(
        worker.inbox, "_failures", LastingFailures(Patience(webhook_s=5.0, server_s=0.2, conflict_s=0.2))
    )
    with monkeypatch.context() as refusing:
        refuse_writes(worker, refusing, error)
        await manager.order(FIRST)
    [refused] = worker.published
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.message, manager.dead) == (
        type(error).__name__.removesuffix("Error"),
        str(error),
        [],
    )
    await manager.order(FIRST)
    assert await standing(worker) == ("w1", 1, {"main": 1}, False)


async def test_an_order_goes_on_as_soon_as_an_api_server_is_back(
    worker: Worker, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that took: it is no refusal, after which the manager would wait."""
    monkeypatch.setattr(
        worker.inbox, "_failures", LastingFailures(Patience(webhook_s=5.0, server_s=0.2, conflict_s=0.2))
    )
    with monkeypatch.context() as away:
        refuse_writes(worker, away, UnavailableError("cannot connect"))
        ordering = asyncio.create_task(manager.order(FIRST))
        await asyncio.sleep(1.0)
        assert worker.published == []
    await ordering
    assert await standing(worker) == ("w1", 1, {"main": 1}, False)


@pytest.mark.parametrize(
    ("before", "again", "expected", "asked"),
    [
        ([], [a_spec(1)], None, 1),
        ([a_spec(1)], [a_spec(2, granted=3)], ("w1", 2, {"main": 3}, False), 0),
        ([a_spec(2, granted=3)], [a_spec(1)], ("w1", 2, {"main": 3}, False), 0),
        ([], [Delete(job=REF, spec_version=2)], None, 0),
    ],
    ids=["it would create the job", "a newer size", "an older size", "a delete"],
)
async def test_an_order_that_comes_again_creates_no_job(
    worker: Worker, before: list[Message], again: list[Message], expected: tuple[Any, ...] | None, asked: int
) -> None:
    """The job may have asked for less since, and gone with its namespace: the manager has to order it anew."""
    manager = Manager(worker)
    async with receiving(worker):
        await manager.order(*before)
    async with ending_agent(worker) as agent:
        ordering = asyncio.create_task(manager.order(*again))
        await anext(aiter(agent))
    async with receiving(worker):
        await ordering
        assert await standing(worker) == expected
    assert worker.inventory_requests == asked
    assert (await worker.copies() == []) is (expected is None)


async def test_the_queues_are_waited_for_and_named_until_the_manager_has_made_them(worker: Worker) -> None:
    async with receiving(worker):
        await asyncio.sleep(0)
        assert worker.inbox.not_ready.startswith(f"waits: queue {agent_queue(EAST, Lane.CONTROL, EAST_UID)} is missing")
        manager = Manager(worker)

        async def made() -> bool:
            return worker.inbox.not_ready == ""

        await eventually(made, "it has its queues")
        await manager.order(a_spec(1))
    assert await standing(worker) == ("w1", 1, {"main": 1}, False)


async def test_an_older_managers_queues_are_enough(worker: Worker) -> None:
    worker.broker.declare(agent_topology(EAST, EAST_UID))
    async with receiving(worker):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert worker.inbox.not_ready == ""
