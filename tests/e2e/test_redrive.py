"""A recorded life, published again to the system that has lived it: nothing changes, and nothing is dead."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import orjson
import pytest

from e2e.test_dead_letters import accept, refuses
from slicebus.bus.contract import Bus, Record
from slicebus.bus.dead_letters.letters import LetterSelection, republish
from slicebus.bus.factory import connect
from slicebus.cli.dead_letters.actions import discard, settle, survey
from slicebus.cli.demo.world import World
from slicebus.cli.journal.redrive import publish, select
from slicebus.cli.journal.source import STREAM, Span
from slicebus.journal.entry import Entry, matching
from slicebus.journal.export import to_line
from slicebus.kube.resources import JOBS, PODS, WORKLOADS
from slicebus.proto.topology import DEAD
from support.fleet import queues_of
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually

_AT_REST_S = 1.0
"""Time in which whatever a message sets off would have been written."""
EVERYTHING = matching()


async def objects_of(world: World) -> dict[str, str]:
    """Every object of a job on every cluster, with its version."""
    found = {}
    for client in (world.manager, *world.workers.values()):
        for resource in (JOBS, WORKLOADS, PODS):
            for item in (await client.list(resource, namespace=NAMESPACE)).items:
                metadata = item["metadata"]
                found[f"{client.host} {resource.plural} {metadata['name']} {metadata['uid']}"] = metadata[
                    "resourceVersion"
                ]
    return found


async def at_rest(bus: Bus, world: World) -> None:
    """Wait until every message has been handled, and what came of it."""
    queues = await queues_of(world)

    async def look() -> bool:
        before = await objects_of(world)
        await asyncio.sleep(_AT_REST_S)
        empty = not any([(await bus.depth(queue)).ready for queue in queues])
        return empty and before == await objects_of(world)

    await eventually(look, "the fleet is at rest")


async def publish_all_again(bus: Bus, entries: list[Entry]) -> None:
    """Whatever a redrive leaves because it was overtaken too: late messages change nothing either."""
    for entry in entries:
        if entry.received is not None and entry.type in VERSIONED:
            back = republish(entry.record.message, manager=bus.user)
            await bus.publish(back.exchange, back.message)


VERSIONED = {"scale-request", "applied", "refused", "workload-spec", "relabel", "suspend", "delete"}


async def life(world: World, name: str) -> Scenario:
    await set_quota(world, 4)
    scenario = Scenario(world, "Job", name)
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    await scenario.scale(6)
    await scenario.expect_unfinished(3, 6)
    await scenario.scale(2)
    await scenario.expect_unfinished(2)
    await scenario.expect_pods(running=2)
    return scenario


@pytest.mark.real
async def test_a_life_that_is_redriven_changes_nothing(
    world: World, urls: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = await life(world, "redriven")
    bus = await connect(urls["manager"], name="test")
    try:
        await at_rest(bus, world)
        before = await objects_of(world)

        found, since = await select(STREAM, Span(), EVERYTHING, amqp_url=urls["manager"])
        assert await publish(bus, found, since, dry_run=True)
        told = capsys.readouterr().out.splitlines()
        redriven = [line.split()[3].partition(".")[2] for line in told if line.startswith("would redrive")]
        assert {"scale-request", "workload-spec"} <= set(redriven)
        assert any("was overtaken by" in line for line in told)
        assert any(line.endswith("an agent says it every few seconds") for line in told)

        for _ in range(2):
            assert await publish(bus, found, since, dry_run=False)
        await at_rest(bus, world)
        assert await objects_of(world) == before
        await publish_all_again(bus, found)
        await at_rest(bus, world)
        assert await objects_of(world) == before
        again_found, _ = await select(STREAM, Span(), EVERYTHING, amqp_url=urls["manager"])
        ids = [entry.record.message.message_id for entry in again_found]
        assert len(ids) == len(set(ids)), "what was redriven is one message"

        file = tmp_path / "life.jsonl"
        file.write_bytes(b"".join(to_line(entry.record) + b"\n" for entry in found))
        await world.manager.delete(JOBS, scenario.name, NAMESPACE)
        await scenario.expect_nothing_left()
        exported, since = await select(str(file), Span(), EVERYTHING, amqp_url=urls["manager"])
        assert len(exported) == len(found)
        assert await publish(bus, exported, since, dry_run=False)
        await publish_all_again(bus, found)
        await at_rest(bus, world)
        assert await objects_of(world) == {}
        assert (await bus.depth(DEAD)).ready == 0
    finally:
        await bus.aclose()


def poisoned(entry: Entry) -> list[Entry]:
    """A message that would give the job more, under its own id and under another one, and as from the manager."""
    message = entry.record.message
    body = orjson.dumps(orjson.loads(message.body) | {"granted": {"main": 40}, "wanted": {"main": 40}})
    forged = [
        msgspec.structs.replace(message, body=body),
        msgspec.structs.replace(message, body=body, message_id=OTHER_ID, headers=message.headers | OTHER_HEADERS),
        msgspec.structs.replace(message, user_id="mallory"),
    ]
    return [Entry.from_record(Record(entry.offset, each, entry.record.timestamp)) for each in forged]


OTHER_ID = "0190ffff-0000-7000-8000-000000000009"
OTHER_HEADERS = {"cloudEvents_id": OTHER_ID}


async def test_a_poisoned_file_publishes_nothing(
    world: World, urls: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await life(world, "poisoned")
    bus = await connect(urls["manager"], name="test")
    try:
        await at_rest(bus, world)
        before = await objects_of(world)
        live, _ = await select(STREAM, Span(), EVERYTHING, amqp_url=urls["manager"])
        newest = {entry.type: entry for entry in live if entry.type in ("workload-spec", "scale-request")}
        assert len(newest) == 2
        for entry in newest.values():
            for forged in poisoned(entry):
                file = tmp_path / "poisoned.jsonl"
                file.write_bytes(to_line(forged.record, redact=False) + b"\n")
                capsys.readouterr()
                found, since = await select(str(file), Span(), EVERYTHING, amqp_url=urls["manager"])
                assert await publish(bus, found, since, dry_run=False)
                [line] = capsys.readouterr().out.splitlines()
                assert line.startswith(f"left {entry.offset} ")
                assert "the broker's journal has" in line
        await at_rest(bus, world)
        assert await objects_of(world) == before
        after, _ = await select(STREAM, Span(), EVERYTHING, amqp_url=urls["manager"])
        known = {entry.offset for entry in live}
        assert not [entry for entry in after if entry.offset not in known and entry.type in newest]
        assert (await bus.depth(DEAD)).ready == 0
    finally:
        await bus.aclose()


async def test_a_request_that_was_lost_takes_effect(world: World, urls: dict[str, str]) -> None:
    """Somebody has dropped it: redriven, it is the same message at last."""
    await set_quota(world, 4)
    scenario = Scenario(world, "Job", "lost")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    cluster = await scenario.cluster()
    bus, agent = await connect(urls["manager"], name="test"), await connect(urls[cluster], name="test")
    try:
        # An inventory that is refused would be asked for again, and would bring the lost request with it.
        await at_rest(bus, world)
        await accept(world, cluster, False)
        await refuses(bus, agent, cluster)
        await scenario.scale(3)

        async def drop() -> bool:
            choice = await survey(bus, LetterSelection(type="scale-request"), lambda: datetime.now(UTC))
            async with aclosing(settle(bus, choice.letters, discard, dry_run=False)) as outcomes:
                return any([outcome.done async for outcome in outcomes])

        await eventually(drop, "the request is dropped")
        await accept(world, cluster, True)
        await at_rest(bus, world)
        await scenario.expect_unfinished(1)
        found, since = await select(STREAM, Span(), matching(type="scale-request"), amqp_url=urls["manager"])
        assert await publish(bus, found, since, dry_run=False)
        await scenario.expect_unfinished(3)
        await scenario.expect_pods(running=3)
    finally:
        for each in (bus, agent):
            await each.aclose()
