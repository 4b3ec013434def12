"""Input that is wrong: each gets its reason where its sender looks, and nothing else stops for it."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import pytest
from msgspec import structs

from slicebus.bus.contract import Bus
from slicebus.bus.dead_letters.headers import DETAIL_HEADER, REASON_HEADER
from slicebus.bus.factory import connect
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import JsonPatch, MergePatch
from slicebus.kube.resources import EVENTS, RAYCLUSTERS
from slicebus.manager.state.requirements import NOT_MANAGED
from slicebus.proto.codec import encode
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, JobRef, ScaleRequest
from slicebus.proto.topology import DEAD, UP
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import conditions_of
from support.epochs import later_epoch
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually


def with_min_parallelism(job: objects.Manifest) -> None:
    job["metadata"]["annotations"][kueue.MIN_PARALLELISM_ANNOTATION] = "1"


def min_above_max(job: objects.Manifest) -> None:
    job["spec"]["workerGroupSpecs"][0] |= {"minReplicas": 5, "maxReplicas": 2}


def suspended_group(job: objects.Manifest) -> None:
    job["spec"]["workerGroupSpecs"][0]["suspend"] = True


@pytest.mark.parametrize(
    ("kind", "spoil", "reason", "message"),
    [
        pytest.param(
            "Job", with_min_parallelism, "PartialAdmissionNotSupported", "job-min-parallelism", id="job-min-parallelism"
        ),
        pytest.param(
            "RayCluster",
            min_above_max,
            "InvalidRayCluster",
            "worker group small-group has minReplicas 5 greater than maxReplicas 2",
            id="min above max",
        ),
        pytest.param(
            "RayCluster",
            suspended_group,
            "InvalidRayCluster",
            "worker group small-group cannot be suspended with Autoscaler enabled",
            id="suspended group",
        ),
    ],
)
async def test_a_job_that_cannot_be_taken_says_why(
    world: World, kind: str, spoil: Callable[[objects.Manifest], None], reason: str, message: str
) -> None:
    await set_quota(world, 20)
    wrong = Scenario(world, kind, "wrong")
    job = elastic(kind, "wrong")
    spoil(job)
    await world.manager.create(wrong.resource, job)
    assert message in await wrong.expect_event(reason, on=world.manager)

    async def says_so() -> bool:
        conditions = conditions_of(await world.manager.get(wrong.resource, "wrong", NAMESPACE))
        said = [
            (c["status"], c["reason"], c["message"]) for c in conditions if c["type"] == api_names.ACCEPTED_CONDITION
        ]
        return [each[:2] for each in said] == [("False", reason)] and message in said[0][2]

    await eventually(says_so, "the job says so too")
    assert not await wrong.chain()
    await expect_that_others_work(world)


@pytest.mark.parametrize("kind", ["Job", "RayCluster", "RayJob"])
async def test_a_job_that_is_left_alone_says_what_it_lacks_until_it_is_taken(world: World, kind: str) -> None:
    await set_quota(world, 20)
    scenario, job = Scenario(world, kind, "lacking"), elastic(kind, "lacking")
    del job["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
    made = await world.manager.create(scenario.resource, job)
    assert kueue.ELASTIC_ANNOTATION in await scenario.expect_event(NOT_MANAGED, on=world.manager)

    async def lacks() -> bool:
        found = await world.manager.get(scenario.resource, "lacking", NAMESPACE)
        conditions = [each.get("reason") for each in found.get("status", {}).get("conditions", ())]
        return NOT_MANAGED in conditions or api_names.NOT_MANAGED_ANNOTATION in found["metadata"].get("annotations", {})

    await eventually(lacks, "the job says what it lacks")
    body = MergePatch({"metadata": {"annotations": {kueue.ELASTIC_ANNOTATION: "true"}}})
    await world.manager.patch(scenario.resource, "lacking", NAMESPACE, body)
    await scenario.expect_pods(running=1)

    async def lacks_nothing() -> bool:
        return not await lacks()

    await eventually(lacks_nothing, "the job says no more that it lacks something")
    events = (await world.manager.list(EVENTS, namespace=NAMESPACE)).items
    mine = [each for each in events if each["involvedObject"].get("uid") == made["metadata"]["uid"]]
    assert [each["count"] for each in mine if each["reason"] == NOT_MANAGED] == [1]


@pytest.mark.real
async def test_an_unknown_queue_is_said_on_the_slice_and_mended_by_making_it(world: World) -> None:
    scenario = Scenario(world, "Job", "sweep")
    await scenario.submit()
    assert "LocalQueue main doesn't exist" in await scenario.expect_event("Inadmissible", on=world.manager)

    async def is_said() -> bool:
        (slice,) = await scenario.chain()
        return slice.conditions.get("QuotaReserved", {}).get("reason") == "Inadmissible"

    await eventually(is_said, "the slice says that it is inadmissible")
    await set_quota(world, 20)
    await scenario.expect_pods(running=1)


async def test_a_resize_that_changes_pod_sets_is_refused_on_both_sides(world: World) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, "RayCluster", "train")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    group = objects.ray_cluster_spec()["workerGroupSpecs"][0] | {"groupName": "another-group"}
    patch = JsonPatch([{"op": "add", "path": "/spec/workerGroupSpecs/-", "value": group}])
    await (await scenario.worker()).patch(RAYCLUSTERS, "train", NAMESPACE, patch)
    assert "another-group" in await scenario.expect_event("StructuralChange", on=await scenario.worker())

    async def told() -> bool:
        (slice,) = await scenario.chain()
        condition = slice.conditions.get("slicebus.dev/Resizable", {})
        return condition.get("status") == "False" and condition.get("reason") == "StructuralChange"

    await eventually(told, "the slice says that it cannot be resized so")
    await expect_that_others_work(world)


REF = JobRef(api_version="batch/v1", kind="Job", namespace=NAMESPACE, name="ghost", uid="no-such-uid")
REQUEST = ScaleRequest(
    job=REF, workload="ghost", worker_uid="uid", worker_generation=2, granted={"main": 1}, wanted={"main": 2}
)


def sent(cluster: str = "east", *, user: str = "east") -> WireMessage:
    """A scale-request as an agent publishes it."""
    issuer = Issuer(epoch=later_epoch(), user=user, now=partial(datetime.now, UTC), random=os.urandom)
    return encode(issuer.envelope(REQUEST, ClusterName(cluster), ClusterUid("uid")), REQUEST)


def not_json() -> WireMessage:
    return structs.replace(sent(), body=b"{not json")


def of_another_version() -> WireMessage:
    message = sent()
    return structs.replace(message, headers=message.headers | {"cloudEvents_schemaversion": "2.0"})


def of_an_unknown_cluster() -> WireMessage:
    return sent("nowhere")


@pytest.mark.parametrize(
    ("make", "reason", "detail"),
    [
        pytest.param(not_json, DeadReason.MALFORMED, "JSON", id="not JSON"),
        pytest.param(of_another_version, DeadReason.UNKNOWN_VERSION, "2.0", id="unknown version"),
        pytest.param(of_an_unknown_cluster, DeadReason.UNKNOWN_CLUSTER, "nowhere", id="unknown cluster"),
    ],
)
async def test_a_message_that_cannot_be_used_is_dead_lettered(
    world: World, broad_urls: dict[str, str], make: Callable[[], WireMessage], reason: DeadReason, detail: str
) -> None:
    await set_quota(world, 20)
    message = make()
    found = await dead_letter(broad_urls, "east", message)
    assert found.headers[REASON_HEADER] == reason
    assert detail in found.headers[DETAIL_HEADER]
    assert found.body == message.body
    await expect_that_others_work(world)


async def test_a_message_of_another_user_is_dead_lettered(world: World, broad_urls: dict[str, str]) -> None:
    found = await dead_letter(broad_urls, "west", sent(user="west"))
    assert found.headers[REASON_HEADER] == DeadReason.WRONG_USER
    assert "user 'west' may not speak for cluster 'east'" in found.headers[DETAIL_HEADER]
    await set_quota(world, 20)
    await expect_that_others_work(world)


async def dead_letter(urls: dict[str, str], sender: str, message: WireMessage) -> WireMessage:
    """Publish a message, and what comes to the dead-letter queue for it."""
    buses: list[Bus] = [await connect(urls[role], name="test") for role in (sender, "manager")]
    try:
        async with buses[1].subscribe(DEAD, prefetch=1) as dead:
            await buses[0].publish(UP, message)
            async for delivery in dead:
                if delivery.message.message_id == message.message_id:
                    await delivery.ack()
                    return delivery.message
                await delivery.ack()
        raise AssertionError("the dead-letter queue was closed")
    finally:
        for bus in buses:
            await bus.aclose()


async def expect_that_others_work(world: World) -> None:
    """A job beside it comes through."""
    other = Scenario(world, "Job", "other")
    await other.submit()
    await other.expect_pods(running=1)
    await other.scale(3)
    await other.expect_pods(running=3)
