"""The inbox: messages of agents over an in-process bus, onto an in-process API server."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.clock import now
from slicebus.kube.resources import JOBS, WORKERCLUSTERS, WORKLOADS
from slicebus.manager.act import inbox
from slicebus.manager.state.annotations import SizeRequest
from slicebus.manager.state.outbox import Dispatch
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings
from slicebus.proto.epochs import epoch_at
from slicebus.proto.errors import UnavailableError
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    Heartbeat,
    Hello,
    JobPhase,
    JobRef,
    Lane,
    Message,
    Resync,
    ScaleRequest,
    Status,
)
from slicebus.proto.topology import DEAD
from slicebus.slices.jobs.batch import BatchJob
from unit.manager.message_router import Manager

HELLO = Hello(agent_version="0.1.0", kubernetes_version="v1.34.0", schema_version="1.0")


def request(job: JobRef, generation: int = 2, wanted: int = 5) -> ScaleRequest:
    return ScaleRequest(
        job=job,
        workload="w1",
        worker_uid="w",
        worker_generation=generation,
        granted={"main": 1},
        wanted={"main": wanted},
    )


def status(job: JobRef, active: int, phase: JobPhase = JobPhase.RUNNING, **fields: bool) -> Status:
    return Status(job=job, workload="w0", spec_version=1, phase=phase, job_status={"active": active}, **fields)


async def test_a_hello_connects_the_agent_and_republishes_its_jobs(manager: Manager) -> None:
    ref = await manager.given_job()
    manager.store.published[ref] = 1
    await manager.receive(HELLO)
    east = await manager.client.get(WORKERCLUSTERS, "east")
    assert (east["status"]["epoch"], east["status"]["agentVersion"]) == (3, "0.1.0")
    assert manager.requeued == [ref]
    assert manager.store.published == {}
    assert ClusterName("east") in manager.inbox.last_message_at


async def test_a_broker_that_is_away_when_the_inbox_begins_is_waited_for(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, tries = manager.inbox._bus, 0
    subscribe = bus.subscribe

    def away(*queues: str, **how: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise UnavailableError("no connection within 30 s")
        return subscribe(*queues, **how)

    monkeypatch.setattr(bus, "subscribe", away)
    monkeypatch.setattr(inbox, "_AGAIN", Backoff(first_s=0.001, most_s=0.002))
    running = asyncio.create_task(manager.inbox.run(Lane.STATUS, prefetch=1))
    while tries < 3 and not running.done():  # noqa: ASYNC110 a turn of the loop each
        await asyncio.sleep(0)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_hello_does_not_requeue_jobs_of_other_clusters(manager: Manager) -> None:
    await manager.given_job()
    await manager.receive(HELLO, cluster="west")
    assert manager.requeued == []


async def test_a_forged_hello_does_not_fence_the_agent(manager: Manager) -> None:
    now_epoch = epoch_at(now())
    await manager.receive(HELLO, epoch=now_epoch)
    await manager.receive(HELLO, epoch=2**31 - 1)
    await manager.receive(HELLO, epoch=now_epoch + 3600)
    assert manager.dead == []
    labels = {"cluster": "east", "type": "hello"}
    assert manager.registry.get_sample_value("slicebus_manager_ahead_total", labels) == 2
    await manager.receive(Heartbeat(jobs=7), epoch=now_epoch)
    east = await manager.client.get(WORKERCLUSTERS, "east")
    assert (east["status"]["epoch"], east["status"]["jobs"]) == (now_epoch, 7)


async def test_an_older_epoch_is_fenced_from_the_hello_on(manager: Manager) -> None:
    await manager.receive(Heartbeat(), epoch=2)
    assert manager.dead == []
    await manager.receive(HELLO, epoch=3)
    await manager.receive(Heartbeat(), epoch=2)
    labels = {"cluster": "east", "type": "heartbeat"}
    assert manager.registry.get_sample_value("slicebus_manager_fenced_total", labels) == 1
    assert manager.registry.get_sample_value("slicebus_manager_messages_total", labels) == 1
    assert manager.dead == [], "its successor has reported everything anew"


async def test_a_heartbeat_that_comes_after_a_newer_one_has_no_effect(manager: Manager) -> None:
    """Its first ones may lie in the queues of strangers, while newer ones come by its own."""
    first = await manager.receive(Heartbeat())
    second = await manager.receive(Heartbeat(fence_s=4.5, jobs=7))
    answered = len(manager.published)
    await manager.again(first)
    assert len(manager.published) == answered
    await manager.again(second)
    status = (await manager.client.get(WORKERCLUSTERS, "east"))["status"]
    assert (status["fenceSeconds"], status["jobs"]) == (4.5, 7)
    await manager.receive(Heartbeat(), epoch=4)
    status = (await manager.client.get(WORKERCLUSTERS, "east"))["status"]
    assert ("fenceSeconds" in status, status["jobs"]) == (False, 0), "the agent began anew"


@pytest.mark.parametrize("cluster", ["north", "nowhere"], ids=["not accepted", "unknown"])
async def test_heartbeats_of_an_unaccepted_cluster_are_no_dead_letters(manager: Manager, cluster: str) -> None:
    await manager.receive(Heartbeat(), cluster=cluster)
    assert manager.dead == []
    assert manager.inbox.last_message_at == {}
    await manager.receive(HELLO, cluster=cluster)
    assert manager.dead == ["unknown-cluster"]


Make = Callable[[JobRef], Message]
MESSAGES: dict[str, Make] = {
    "scale-request": request,
    "status": lambda job: status(job, 7),
    "applied": lambda job: Applied(job=job, workload="w1", spec_version=1),
}


@pytest.mark.parametrize("make", MESSAGES.values(), ids=MESSAGES.keys())
@pytest.mark.parametrize(
    ("cluster", "user", "reason"),
    [("east", "west", "wrong-user"), ("west", "west", "refused"), ("nowhere", "nowhere", "unknown-cluster")],
    ids=["another's name", "another's job", "a cluster that is not there"],
)
async def test_a_message_of_another_cluster_is_refused(
    manager: Manager, make: Make, cluster: str, user: str, reason: str
) -> None:
    ref = await manager.given_job()
    before = await manager.client.get(JOBS, "train", "team"), await manager.client.get(WORKLOADS, "w1", "team")
    await manager.receive(make(ref), cluster=cluster, user=user)
    assert manager.dead == [reason]
    assert before == (
        await manager.client.get(JOBS, "train", "team"),
        await manager.client.get(WORKLOADS, "w1", "team"),
    )


async def test_a_request_is_on_the_slice_before_it_is_acknowledged_and_only_once(manager: Manager) -> None:
    ref = await manager.given_job()
    wire = await manager.receive(request(ref))
    workload = await manager.client.get(WORKLOADS, "w1", "team")
    written = SizeRequest.from_manifest(workload)
    assert written is not None
    assert written.counts == {"main": 5}
    await manager.again(wire)
    assert await manager.client.get(WORKLOADS, "w1", "team") == workload


async def test_a_late_status_does_not_take_back_a_newer_one(manager: Manager) -> None:
    ref = await manager.given_job()
    first = await manager.receive(status(ref, 1))
    second = await manager.receive(status(ref, 2))
    await manager.again(first)
    assert await manager.job_status() == {"active": 2}
    await manager.again(second)
    await manager.receive(status(ref, 1), epoch=4)
    assert await manager.job_status() == {"active": 1}
    assert manager.dead == []


@pytest.mark.parametrize("beside_kueue", [False, True], ids=["builtin", "beside a Kueue"])
async def test_a_status_is_noted_once_and_forgotten_when_its_job_is_gone(manager: Manager, beside_kueue: bool) -> None:
    if beside_kueue:
        manager.store.configure(LeaderSettings(admission=AdmissionModeName.KUEUE))
    ref, noted = await manager.given_job(), list[str]()
    manager.store.last_status.observe(lambda key, value: noted.append(str(value)))
    first = await manager.receive(status(ref, 1))
    await manager.receive(status(ref, 2))
    await manager.again(first)
    assert noted == ["(3, 1)", "(3, 2)"]
    assert dict(manager.store.reported) == ({ref: status(ref, 2)} if beside_kueue else {})
    await manager.store.jobs[ref.kind].replace([], "999")
    await manager.receive(status(ref, 3))
    assert (dict(manager.store.last_status), dict(manager.store.reported)) == ({}, {})


async def test_a_late_report_that_the_job_is_gone_removes_nothing(manager: Manager) -> None:
    ref = await manager.given_job()
    wire = await manager.receive(status(ref, 1))
    late = msgspec.structs.replace(wire, body=wire.body.replace(b'"Running"', b'"Gone"'))
    await manager.receive(status(ref, 2))
    await manager.again(late)
    assert await manager.job_status() == {"active": 2}


async def test_what_was_deleted_on_the_worker_is_deleted_here(manager: Manager) -> None:
    ref = await manager.given_job()
    await manager.receive(status(ref, 0, JobPhase.GONE, seen=True))
    assert Dispatch.from_manifest(await manager.client.get(WORKLOADS, "w1", "team")).has_vanished  # type: ignore[union-attr]
    await manager.reconcile_job(ref)
    assert (await manager.client.list(JOBS)).items == []


async def test_a_message_about_an_unknown_kind_is_dead(manager: Manager) -> None:
    await manager.receive(request(JobRef("v1", "Pod", "team", "train", "u")))
    assert manager.dead == ["refused"]


async def test_a_message_that_is_for_agents_is_dead(manager: Manager) -> None:
    await manager.receive(Resync())
    assert manager.dead == ["unknown-type"]


async def test_a_message_about_a_deleted_job_does_nothing(manager: Manager) -> None:
    ref = JobRef("batch/v1", "Job", "team", "gone", "u")
    for message in (request(ref), status(ref, 1), Applied(job=ref, workload="w1", spec_version=1)):
        await manager.receive(message)
    assert manager.dead == []


ILL_TYPED: dict[str, object] = {
    "a counter that is text": {"succeeded": "x"},
    "a counter below zero": {"failed": -1},
    "a counter of 64 bits": {"active": 2**40},
    "conditions that are no list": {"conditions": {}},
    "a condition that is text": {"conditions": ["Complete"]},
    "a condition without a status": {"conditions": [{"type": "Complete"}]},
    "a time that is a number": {"startTime": 7},
    "a condition since a number": {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": 7}]},
}


@pytest.mark.parametrize("said", ILL_TYPED.values(), ids=ILL_TYPED)
async def test_a_status_of_another_type_is_a_dead_letter_and_the_next_one_counts(
    manager: Manager, said: dict[str, object]
) -> None:
    ref = await manager.given_job()
    await manager.receive(msgspec.structs.replace(status(ref, 1), job_status=said))
    assert manager.dead == ["malformed"]
    [letter] = manager.broker.queues[DEAD].ready
    assert "job_status: no status of a Job: " in str(letter.message.headers)
    await manager.receive(status(ref, 3))
    assert (await manager.job_status())["active"] == 3


@pytest.mark.decisions_fail
async def test_a_message_whose_decision_raises_is_a_dead_letter_and_the_next_one_counts(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, mirrored = await manager.given_job(), BatchJob.mirrored_status

    def stumbling(kind: BatchJob, job: Any, reported: Any) -> Any:
        if reported.get("active") == 2:
            raise KeyError("active")
        return mirrored(kind, job, reported)

    monkeypatch.setattr(BatchJob, "mirrored_status", stumbling)
    for active in (2, 3):
        await manager.receive(status(ref, active))
    assert manager.dead == ["failed"]
    assert (await manager.job_status())["active"] == 3
