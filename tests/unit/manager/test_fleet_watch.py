"""The fleet watch: a slice may change between the decision to evict it and the write."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from slicebus.decisions.commands import Command, Patch
from slicebus.decisions.decider import Decider
from slicebus.manager.act.fleet_watch import FleetWatch
from slicebus.manager.state.store import ManagerStore
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import kueue
from unit.kube.loop_time import LoopTime
from unit.manager.objects import EAST, WEST, a_workload, condition

WRITE_S = 1.0


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
                self.evicted.append(metadata["name"])
                version = {"metadata": {"resourceVersion": str(int(metadata["resourceVersion"]) + 1)}}
                self.store.workloads.put(merge_patch(command.target, command.body | version))


async def test_a_chain_that_has_left_while_another_was_evicted_stays_where_it_is(jumping: LoopTime) -> None:
    world, lost_s = World(), 30.0
    inbox: Any = SimpleNamespace(last_message_at={EAST: 1e9}, on_message=lambda _: None)
    watch = FleetWatch(
        cluster_lost_s=lost_s,
        decide=Decider(world.store),
        executor=world,  # type: ignore[arg-type]
        inbox=inbox,
        resyncer=SimpleNamespace(forget=lambda _: None),  # type: ignore[arg-type]
        requeue=lambda _: None,
    )
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(lost_s / 10 + WRITE_S / 2)
    world.store.workloads.put(a_running("w2", version=20, cluster=WEST))
    await asyncio.sleep(60)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert world.evicted == ["w1"]
