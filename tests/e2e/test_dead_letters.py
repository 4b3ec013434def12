"""Dead letters that come back: they take effect once, and nobody can pass for another by way of them."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime

import pytest
from msgspec import structs

from slicebus.bus.contract import Bus
from slicebus.bus.dead_letters.browse import browse
from slicebus.bus.dead_letters.headers import REASON_HEADER, USER_HEADER, dead_copy
from slicebus.bus.dead_letters.letters import DeadLetter, LetterSelection
from slicebus.bus.factory import connect
from slicebus.cli.dead_letters.actions import LetterResult, Requeuer, discard, settle, survey
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, WORKERCLUSTERS
from slicebus.manager.state.annotations import job_ref
from slicebus.proto.codec import encode
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, Hello, ScaleRequest
from slicebus.proto.topology import DEAD, UP
from support.epochs import later_epoch
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually

HELLO = Hello(agent_version="9.9.9", kubernetes_version="v1.34.0", schema_version="1.0")
EVERYTHING, WISHES = LetterSelection(), LetterSelection(type="scale-request")


def issuer(user: str, epoch: int | None = None) -> Issuer:
    """By default with an epoch of no agent yet."""
    return Issuer(
        epoch=later_epoch() if epoch is None else epoch,
        user=user,
        now=lambda: datetime.now(UTC),
        random=lambda count: b"\7" * count,
    )


async def dead_letters(bus: Bus, count: int) -> list[WireMessage]:
    """Wait for so many."""

    async def look() -> tuple[list[WireMessage]] | None:
        async with browse(bus, DEAD) as found:
            messages = [delivery.message async for delivery in found]
        return (messages,) if len(messages) == count else None

    [found] = await eventually(look, f"{count} dead letters") or ([],)
    return found


async def requeue_all(bus: Bus, wanted: LetterSelection = EVERYTHING) -> list[LetterResult]:
    choice = await survey(bus, wanted, lambda: datetime.now(UTC))
    async with aclosing(settle(bus, choice.letters, Requeuer(bus, agents={}, dry_run=False), dry_run=False)) as done:
        return [outcome async for outcome in done]


async def test_a_message_of_an_unknown_cluster_takes_effect_once_it_is_known(
    world: World, broad_urls: dict[str, str]
) -> None:
    """Also requeued twice: the copy that a crash between publish and acknowledgement leaves is a no-op."""
    manager, agent = await connect(broad_urls["manager"], name="test"), await connect(broad_urls["west"], name="test")
    try:
        hello = issuer("west").envelope(HELLO, ClusterName("north"), ClusterUid("uid-of-north"))
        await agent.publish(UP, encode(hello, HELLO))
        [message] = await dead_letters(manager, 1)
        assert message.headers[REASON_HEADER] == DeadReason.UNKNOWN_CLUSTER
        assert [outcome.done for outcome in await requeue_all(manager)] == [True]
        [message] = await dead_letters(manager, 1)

        await world.manager.create(WORKERCLUSTERS, objects.worker_cluster("north", broker_user="west"))
        await manager.publish(DEAD, message)
        await dead_letters(manager, 2)
        assert [outcome.done for outcome in await requeue_all(manager)] == [True, True]
        await requeue_until_none_is_left(manager)

        async def connected() -> bool:
            status = (await world.manager.get(WORKERCLUSTERS, "north")).get("status", {})
            return (status.get("epoch"), status.get("agentVersion")) == (hello.epoch, "9.9.9")

        await eventually(connected, "the hello of north has taken effect")
    finally:
        await world.manager.delete(WORKERCLUSTERS, "north", None)
        for bus in (manager, agent):
            await bus.aclose()


async def test_a_wish_that_is_requeued_twice_is_one_slice(world: World, urls: dict[str, str]) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, "Job", "sweep")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    cluster = await scenario.cluster()
    manager, agent = await connect(urls["manager"], name="test"), await connect(urls[cluster], name="test")
    try:
        await accept(world, cluster, False)
        await refuses(manager, agent, cluster)
        await scenario.scale(4)
        message, *_ = [m for m in await dead_wishes(manager) if DeadLetter.from_message(m).cluster == cluster]
        await accept(world, cluster, True)
        await manager.publish(DEAD, message)
        outcomes = await requeue_all(manager, WISHES)
        assert len(outcomes) >= 2
        assert all(outcome.done for outcome in outcomes)
        await requeue_until_none_is_left(manager, WISHES)
        await scenario.expect_pods(running=4)
        await scenario.expect_unfinished(4)
        assert len(await scenario.chain()) == 2
    finally:
        for bus in (manager, agent):
            await bus.aclose()


async def requeue_until_none_is_left(bus: Bus, wanted: LetterSelection = EVERYTHING) -> None:
    """The manager may not have seen yet that the cluster is accepted: what is dead again is requeued again."""

    async def look() -> bool:
        outcomes = await requeue_all(bus, wanted)
        await asyncio.sleep(0.3)
        return not outcomes

    await eventually(look, "no dead letter is left")


async def refuses(manager: Bus, agent: Bus, cluster: ClusterName) -> None:
    """Wait until the manager knows that a cluster is not accepted. An ended epoch's hello changes nothing."""
    ended = issuer(agent.user, epoch=0)

    async def look() -> bool:
        await agent.publish(UP, encode(ended.envelope(HELLO, cluster, ClusterUid("uid")), HELLO))
        async with browse(manager, DEAD) as found:
            reasons = {delivery.message.headers[REASON_HEADER] async for delivery in found}
        return DeadReason.UNKNOWN_CLUSTER in reasons

    await eventually(look, f"{cluster} is refused")
    choice = await survey(manager, LetterSelection(type="hello"), lambda: datetime.now(UTC))
    async with aclosing(settle(manager, choice.letters, discard, dry_run=False)) as outcomes:
        assert all([outcome.done async for outcome in outcomes])


async def dead_wishes(bus: Bus) -> list[WireMessage]:
    async def look() -> list[WireMessage]:
        async with browse(bus, DEAD) as found:
            return [d.message async for d in found if d.message.routing_key.endswith(".scale-request")]

    return await eventually(look, "a dead scale-request") or []


async def accept(world: World, cluster: str, accepted: bool) -> None:
    await world.manager.patch(WORKERCLUSTERS, cluster, None, MergePatch({"spec": {"accepted": accepted}}))


@pytest.mark.real
async def test_an_agent_cannot_pass_for_another_by_way_of_dead_letters(
    world: World, broad_urls: dict[str, str]
) -> None:
    """West writes east's name: into a message, and into a dead letter that it made up."""
    await set_quota(world, 20)
    scenario = Scenario(world, "Job", "sweep")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    job = await world.manager.get(JOBS, "sweep", NAMESPACE)
    wish = ScaleRequest(
        job=job_ref(job), workload="w", worker_uid="w", worker_generation=9, granted={"main": 1}, wanted={"main": 9}
    )
    cluster = await scenario.cluster()
    thief = next(name for name in ("east", "west") if name != cluster)
    manager, agent = await connect(broad_urls["manager"], name="test"), await connect(broad_urls[thief], name="test")
    try:
        forged = encode(issuer(thief).envelope(wish, cluster, ClusterUid("uid")), wish)
        forged = structs.replace(forged, headers=forged.headers | {USER_HEADER: cluster})
        await agent.publish(UP, forged)
        [first] = await dead_letters(manager, 1)
        assert first.headers[REASON_HEADER] == DeadReason.WRONG_USER
        assert [outcome.done for outcome in await requeue_all(manager)] == [True]
        [again] = await dead_letters(manager, 1)
        assert again.headers[REASON_HEADER] == DeadReason.WRONG_USER
        assert again.headers[USER_HEADER] == thief

        await agent.publish(UP, structs.replace(forged, user_id=None))
        made_up = dead_copy(
            structs.replace(forged, user_id=cluster),
            queue="slicebus.manager.control",
            reason=DeadReason.UNKNOWN_CLUSTER,
            detail="not so",
            at=datetime.now(UTC),
            by=thief,
        )
        await agent.publish(DEAD, made_up)
        await dead_letters(manager, 3)
        assert sorted(outcome.done for outcome in await requeue_all(manager)) == [False, False, True]
        await scenario.expect_unfinished(1)
    finally:
        for bus in (manager, agent):
            await bus.aclose()
