"""The traces of a job in a fleet's journal: its resizes, what waits, and what was dead-lettered."""

import asyncio
from uuid import UUID

import pytest

from slicebus.ambient.clock import now
from slicebus.bus.dead_letters.headers import dead_copy
from slicebus.bus.factory import connect
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.cli.journal.source import STREAM, Span
from slicebus.cli.trace.command import find
from slicebus.cli.trace.sending import follow_journal
from slicebus.journal.traces import STEP, Trace, TraceOutcome
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES
from slicebus.proto.errors import DeadReason, ForbiddenError
from slicebus.proto.messages import Lane
from slicebus.proto.topology import DEAD, manager_queue
from support.otlp import otlp_stand_in
from support.scenario import Scenario as Job
from support.scenario import set_quota
from support.waiting import PATIENCE_S, eventually


async def trace_of(url: str, job: str, title: str, *, outcome: TraceOutcome, step: str = "") -> Trace:
    """Wait until the journal has a trace of the job with this title and this outcome, and with a hop that begins so: a
    role's steps are published after its messages."""

    async def look() -> Trace | None:
        recorded = await find(job, STREAM, Span(), amqp_url=url)
        for trace in recorded.traces():
            has_step = any(hop.text.startswith(step) for hop in trace.hops)
            if (trace.title, trace.outcome) == (title, outcome) and has_step:
                return trace
        return None

    trace = await eventually(look, f"the trace {title} is {outcome.name}")
    assert trace is not None
    return trace


async def stop_queue(world: World, policy: str) -> None:
    """Another stopPolicy of the ClusterQueue."""
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": {"stopPolicy": policy}}))


async def test_the_journal_of_a_broker_has_the_trace_of_a_job(world: World, urls: dict[str, str]) -> None:
    await set_quota(world, 4)
    job = Job(world, "Job", "traced")
    await job.submit()
    await job.expect_pods(running=1)
    await job.scale(3)
    await job.expect_pods(running=3)

    expected = ["scale-request", "creates slice", "admits slice", "workload-spec", "moves the", "ungates 2", "status"]

    async def whole() -> Trace | None:
        """Decisions are recorded a moment after the messages."""
        trace = await trace_of(urls["manager"], "traced", "resize main 1 -> 3", outcome=TraceOutcome.DONE)
        words = [hop.type if hop.type != STEP else " ".join(hop.text.split()[:2]) for hop in trace.hops]
        return trace if [word for word in words if word in expected] == expected else None

    trace = await eventually(whole, "the trace has every step")
    assert trace is not None
    assert not trace.clocks_apart

    await job.scale(9)
    await job.expect_event("Pending", on=await job.worker())
    waiting = await trace_of(urls["manager"], "traced", "resize main 3 -> 9", outcome=TraceOutcome.WAITS)
    assert "insufficient quota" in waiting.note


async def test_an_eviction_is_one_change_and_what_follows_another(world: World, urls: dict[str, str]) -> None:
    await set_quota(world, 4)
    job = Job(world, "Job", "drained")
    await job.submit()
    await job.expect_pods(running=1)
    before = await trace_of(urls["manager"], "drained", "start with main=1", outcome=TraceOutcome.DONE)
    await stop_queue(world, "HoldAndDrain")
    eviction = await trace_of(urls["manager"], "drained", "eviction", outcome=TraceOutcome.DONE, step="frees the")
    assert eviction.note == "The ClusterQueue is stopped"
    first, second, order = eviction.hops[:3]
    assert first.text.endswith(" is evicted: The ClusterQueue is stopped")
    assert " is suspended: Quota is held until cluster " in second.text
    assert order.type == "suspend"
    await stop_queue(world, "None")
    await job.expect_pods(running=1)
    title = "start again with main=1"
    again = await trace_of(urls["manager"], "drained", title, outcome=TraceOutcome.DONE, step="admits slice")
    assert again.note == "waited: ClusterQueue batch is stopped"
    assert again.waited < again.took
    recorded = await find("drained", STREAM, Span(), amqp_url=urls["manager"])
    titles = [trace.title for trace in recorded.traces()]
    assert titles == ["start with main=1", "eviction", "start again with main=1"]
    start = recorded.traces()[0]
    assert start.began + start.took == before.began + before.took, "what came later does not count"


async def test_the_trace_shows_a_dead_letter_of_the_job(world: World, urls: dict[str, str]) -> None:
    await set_quota(world, 4)
    job = Job(world, "Job", "deadly")
    await job.submit()
    await job.expect_pods(running=1)
    await job.scale(9)
    await job.expect_event("Pending", on=await job.worker())
    found = await find("team-a/deadly", STREAM, Span(), amqp_url=urls["manager"])
    [request] = [entry.record.message for entry in found.messages if entry.type == "scale-request"]
    bus = await connect(urls["manager"], name="test")
    try:
        queue = manager_queue(Lane.CONTROL)
        copy = dead_copy(request, queue=queue, reason=DeadReason.REFUSED, detail="no", at=now(), by=bus.user)
        await bus.publish(DEAD, copy)
    finally:
        await bus.aclose()
    trace = await trace_of(urls["manager"], "deadly", "resize main 1 -> 9", outcome=TraceOutcome.DEAD)
    assert trace.note == "scale-request is dead: refused: no"


async def test_a_follower_sends_each_change_once_it_is_over(world: World, urls: dict[str, str]) -> None:
    await set_quota(world, 4)
    job = Job(world, "Job", "followed")
    with otlp_stand_in() as receiver:
        following = asyncio.create_task(follow_journal("", now(), receiver.url, amqp_url=urls["manager"]))
        try:
            await job.submit()
            await job.expect_pods(running=1)
            await job.scale(3)
            await job.expect_pods(running=3)

            async def sent() -> bool:
                return {span.name for _, span in receiver.spans()} >= {"start", "resize", "admission", "pods ungated"}

            await eventually(sent, "the start and the resize are sent")
            receiver.status = 503
            await job.scale(2)
            await job.expect_pods(running=2)
            trace = await trace_of(urls["manager"], "followed", "resize main 3 -> 2", outcome=TraceOutcome.DONE)
            receiver.status = 200

            async def caught_up() -> bool:
                return UUID(trace.correlation_id).bytes in {span.trace_id for _, span in receiver.spans()}

            await eventually(caught_up, "what waited for the receiver is sent")
            assert not following.done()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    ids = [span.span_id for _, span in receiver.spans()]
    assert len(ids) == len({*ids}), "each once"


async def test_a_follower_ends_where_its_receiver_refuses(world: World, urls: dict[str, str]) -> None:
    await set_quota(world, 4)
    job = Job(world, "Job", "refused")
    with otlp_stand_in() as receiver:
        receiver.status = 401
        following = asyncio.create_task(follow_journal("", now(), receiver.url, amqp_url=urls["manager"]))
        try:
            await job.submit()
            with pytest.raises(ForbiddenError, match="answers 401"):
                await asyncio.wait_for(following, PATIENCE_S)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
