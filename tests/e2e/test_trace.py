"""What a fleet's journal tells of a job: how its resizes went, what waits, and what is dead."""

import asyncio

from slicebus.ambient.clock import now
from slicebus.bus.dead_letter_headers import dead_copy
from slicebus.bus.factory import connect
from slicebus.cli.demo.world import World
from slicebus.cli.journal_source import STREAM, Span
from slicebus.cli.trace import find
from slicebus.journal.traces import STEP, Outcome, Story
from slicebus.proto.errors import DeadReason
from slicebus.proto.messages import Lane
from slicebus.proto.topology import DEAD, manager_queue
from support.scenario import Story as Job
from support.scenario import set_quota
from support.waiting import eventually


async def told(url: str, job: str) -> dict[str, Story]:
    """Its stories by their titles, from the journal as it is when everything is recorded."""
    await asyncio.sleep(0.3)
    found = await find(job, STREAM, Span(), amqp_url=url)
    return {story.title: story for story in found.stories()}


async def test_a_jobs_way_from_the_journal_of_a_broker(world: World, urls: dict[str, str]) -> None:
    await set_quota(world, 4)
    job = Job(world, "Job", "traced")
    await job.submit()
    await job.expect_pods(running=1)
    await job.scale(3)
    await job.expect_pods(running=3)

    async def grown() -> Story | None:
        story = (await told(urls["manager"], "traced")).get("resize main 1 -> 3")
        return story if story and story.outcome is Outcome.DONE else None

    story = await eventually(grown, "the resize is told to its end")
    assert story is not None
    words = [hop.type if hop.type != STEP else hop.text.split()[0] for hop in story.hops]
    expected = ["scale-request", "makes", "admits", "workload-spec", "puts", "ungates", "status"]
    assert [word for word in words if word in expected] == expected
    assert not story.clocks_apart

    await job.scale(9)
    await job.expect_event("Pending", on=await job.worker())
    waiting = (await told(urls["manager"], "traced"))["resize main 3 -> 9"]
    assert waiting.outcome is Outcome.WAITS
    assert "insufficient quota" in waiting.note


async def test_a_dead_letter_about_the_job_is_told(world: World, urls: dict[str, str]) -> None:
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
    story = (await told(urls["manager"], "deadly"))["resize main 1 -> 9"]
    assert (story.outcome, story.note) == (Outcome.DEAD, "scale-request is dead: refused: no")
