"""A worker that lacks the namespace of a job gets none of its jobs, and says so."""

from typing import Any

import pytest

from slicebus.agent.act import namespaces
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.resources import JOBS, NAMESPACES, WORKERCLUSTERS, WORKLOADS
from slicebus.proto.messages import ClusterName
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.workload import Slice
from support.scenario import ELSEWHERE, Scenario, expect_used, open_elsewhere, submit_elsewhere
from support.waiting import eventually

Manifest = dict[str, Any]
WEST = ClusterName("west")


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "_ROUND_S", 0.5)


async def slice_of(world: World, name: str) -> Slice | None:
    page = await world.manager.list(WORKLOADS, namespace=ELSEWHERE)
    found = [Slice.from_manifest(each) for each in page.items if name in each["metadata"]["name"]]
    return found[-1] if found else None


async def test_a_job_waits_without_quota_until_a_worker_has_its_namespace(world: World) -> None:
    await open_elsewhere(world)
    await submit_elsewhere(world, "sweep")

    async def waits() -> bool:
        slice = await slice_of(world, "sweep")
        shown = slice.conditions.get(Condition.QUOTA_RESERVED, {}) if slice else {}
        why = "east has no namespace elsewhere, west has no namespace elsewhere"
        return shown.get("reason") == "NoPlace" and why in shown["message"]

    await eventually(waits, "the job waits for a place")
    await expect_used(world, "0")
    for cluster in world.workers:
        status = (await world.manager.get(WORKERCLUSTERS, cluster))["status"]
        assert status["lackingNamespaces"] == {ELSEWHERE: "NotFound"}
    others = Scenario(world, "Job", "others")
    await others.submit()
    await others.expect_pods(running=1)

    await world.ensure(world.workers[WEST], NAMESPACES, objects.namespace(ELSEWHERE))

    async def runs() -> bool:
        slice = await slice_of(world, "sweep")
        return slice is not None and slice.admitted and slice.cluster == WEST

    await eventually(runs, "the job runs where its namespace is")

    async def is_there() -> Manifest:
        return await world.workers[WEST].get(JOBS, "sweep", ELSEWHERE)

    await eventually(is_there, "west has the job")
    await world.manager.delete(JOBS, "sweep", ELSEWHERE)
