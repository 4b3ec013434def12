"""The fleet watch: a slice may change between the decision to evict it and the write."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from slicebus.decisions.commands import Command, Patch
from slicebus.decisions.decider import Decider
from slicebus.kube.failures import error_of
from slicebus.manager.act.fleet_watch import FleetWatch
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ForbiddenError, InvalidError, SlicebusError, WebhookError
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import kueue
from unit.kube.loop_time import LoopTime
from unit.manager.objects import EAST, WEST, a_workload, condition

WRITE_S = 1.0
LOST_S = 30.0


def a_running(name: str, version: int, *, cluster: str = EAST) -> dict[str, Any]:
    """The slice of a job of its own."""
    workload = a_workload(name, admitted=1, cluster=cluster)
    workload["metadata"]["labels"][kueue.JOB_UID_LABEL] = f"job-{name}"
    workload["metadata"]["ownerReferences"][0] |= {"uid": f"job-{name}", "name": name}
    workload["metadata"]["resourceVersion"] = str(version)
    return workload


class World:
    """Two jobs on a cluster that is drained, and writes that take their time."""

    def __init__(self) -> None:
        self.store = ManagerStore()
        self.evicted: list[str] = []
        self.refuses: list[SlicebusError] = []
        self.forgotten = set[str]()
        metadata = {"name": EAST, "uid": EAST, "resourceVersion": "1"}
        spec, status = {"accepted": True, "drain": True}, {"conditions": [condition("Connected")]}
        self.store.clusters.put({"metadata": metadata, "spec": spec, "status": status})
        for name in ("w1", "w2"):
            self.store.workloads.put(a_running(name, version=10))

    async def run(self, commands: Sequence[Command], *, caused_by: Any = None) -> None:
        """As the executor."""
        for command in commands:
            if isinstance(command, Patch):
                await asyncio.sleep(WRITE_S)
                metadata = command.target["metadata"]
                if self.refuses:
                    raise self.refuses.pop(0)
                self.evicted.append(metadata["name"])
                version = {"metadata": {"resourceVersion": str(int(metadata["resourceVersion"]) + 1)}}
                self.store.cache_of(command.resource).put(merge_patch(command.target, command.body | version))


def watching(world: World, *, silent: bool = False) -> FleetWatch:
    heard = {} if silent else {EAST: 1e9}
    inbox: Any = SimpleNamespace(
        last_message_at=heard, on_message=lambda _: None, refused_clusters={"left the fleet": "403"}
    )
    return FleetWatch(
        cluster_lost_s=LOST_S,
        decide=Decider(world.store),
        executor=world,  # type: ignore[arg-type]
        inbox=inbox,
        resyncer=SimpleNamespace(forget=world.forgotten.add),  # type: ignore[arg-type]
        requeue=lambda _: None,
    )


@pytest.mark.parametrize("error", [ForbiddenError("403"), InvalidError("422")], ids=repr)
async def test_an_eviction_that_is_refused_ends_nothing_and_is_tried_again(
    jumping: LoopTime, error: SlicebusError
) -> None:
    world = World()
    world.refuses = [error] * 4
    task = asyncio.create_task(watching(world).run())
    await asyncio.sleep(60)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sorted(set(world.evicted)) == ["w1", "w2"]


UNSHOWN = [ForbiddenError("403"), WebhookError("403"), error_of(500, b'{"message": "403"}')]


@pytest.mark.parametrize("error", UNSHOWN, ids=lambda error: type(error).__name__)
async def test_a_lost_cluster_is_asked_again_although_nobody_may_show_that_it_is_lost(
    jumping: LoopTime, error: SlicebusError
) -> None:
    world = World()
    world.refuses = [error] * 1000
    watch = watching(world, silent=True)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(3 * LOST_S)
    assert not task.done()
    assert watch.refused == {EAST: str(error)}, "the Lease says so"
    world.refuses.clear()
    await asyncio.sleep(20 * LOST_S)
    assert watch.refused == {}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert world.forgotten == {EAST}


async def test_a_chain_that_has_left_while_another_was_evicted_stays_where_it_is(jumping: LoopTime) -> None:
    world = World()
    task = asyncio.create_task(watching(world).run())
    await asyncio.sleep(LOST_S / 10 + WRITE_S / 2)
    world.store.workloads.put(a_running("w2", version=20, cluster=WEST))
    await asyncio.sleep(60)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert world.evicted == ["w1"]
