"""The admitter's writes: what has no answer stays charged, what is refused holds up nobody else."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from slicebus.kube.embedded.patches import merge_patch
from slicebus.manager.admitter import Admitter
from slicebus.manager.store import Store
from slicebus.process.commands import Command, Patch
from slicebus.process.decisions import Decider
from slicebus.proto.errors import ConflictError, InvalidError, SlicebusError, UnavailableError
from slicebus.slices import kueue
from unit.kube.loop_time import LoopTime
from unit.manager.objects import a_workload, condition

Manifest = dict[str, Any]


def named(name: str, spec: Manifest, **more: Any) -> Manifest:
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", **more.pop("metadata", {})},
        "spec": spec,
    } | more


def a_pending(name: str) -> Manifest:
    """The first slice of a job of its own."""
    workload = a_workload(name)
    workload["metadata"]["labels"][kueue.JOB_UID_LABEL] = f"job-{name}"
    workload["metadata"]["ownerReferences"][0] |= {"uid": f"job-{name}", "name": name}
    del workload["metadata"]["annotations"][kueue.SLICE_NAME_ANNOTATION]
    return workload


class World:
    """A store with a quota, and writes that go as a test has it."""

    def __init__(self, cpu: int) -> None:
        self.store = Store()
        flavors = [{"name": "spot", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        self.store.flavors.put(named("spot", {}))
        self.store.cluster_queues.put(named("cq", {"namespaceSelector": {}, "resourceGroups": groups}))
        self.store.local_queues.put(named("queue", {"clusterQueue": "cq"}, metadata={"namespace": "team"}))
        connected = {"conditions": [condition("Connected")]}
        self.store.clusters.put(named("east", {"accepted": True}, status=connected))
        self.errors: dict[str, list[SlicebusError]] = {}
        self.tried: list[tuple[str, bool]] = []
        self._version = 100

    async def run(self, commands: Sequence[Command], *, caused_by: Any = None) -> None:
        """As the executor."""
        for command in commands:
            if isinstance(command, Patch):
                name = command.target["metadata"]["name"]
                self.tried.append((name, "admission" in command.body["status"]))
                if self.errors.get(name):
                    raise self.errors[name].pop(0)
                self.write(merge_patch(command.target, command.body))

    def write(self, workload: Manifest) -> None:
        self._version += 1
        self.store.workloads.put(merge_patch(workload, {"metadata": {"resourceVersion": str(self._version)}}))

    @property
    def admitted(self) -> list[str]:
        return sorted(slice.name for slice in self.store.slices.values() if slice.admitted)


@asynccontextmanager
async def admitting(world: World) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(Admitter(Decider(world.store), world).run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_fits_is_admitted_and_the_rest_waits(jumping: LoopTime) -> None:
    world = World(cpu=1)
    for name in ("w1", "w2"):
        world.write(a_pending(name))
    async with admitting(world):
        await asyncio.sleep(5)
    assert world.admitted == ["w1"]
    assert world.tried == [("w1", True), ("w2", False)]


async def test_one_that_the_server_refuses_holds_up_no_other(jumping: LoopTime) -> None:
    world = World(cpu=2)
    world.errors = {"w1": [InvalidError("422")] * 100}
    for name in ("w1", "w2"):
        world.write(a_pending(name))
    async with admitting(world) as task:
        await asyncio.sleep(5)
        assert not task.done()
    assert world.admitted == ["w2"]


async def test_a_conflict_is_decided_again(jumping: LoopTime) -> None:
    world = World(cpu=1)
    world.errors = {"w1": [ConflictError("409")]}
    world.write(a_pending("w1"))
    async with admitting(world):
        await asyncio.sleep(5)
    assert world.admitted == ["w1"]


async def test_an_admission_without_an_answer_keeps_its_quota_until_it_is_certain(jumping: LoopTime) -> None:
    world = World(cpu=1)
    world.errors = {"w1": [UnavailableError("reset")] * 10}
    world.write(a_pending("w1"))
    async with admitting(world):
        await asyncio.sleep(0.1)
        world.write(a_pending("w0"))
        await asyncio.sleep(1)
        assert ("w0", True) not in world.tried, "the quota was given twice"
        await asyncio.sleep(5)
    assert world.admitted == ["w1"]


async def test_an_admission_that_did_not_happen_gives_its_quota_back(jumping: LoopTime) -> None:
    world = World(cpu=1)
    world.errors = {"w1": [UnavailableError("reset")] * 1000}
    world.write(a_pending("w1"))
    async with admitting(world):
        await asyncio.sleep(1)
        changed = a_pending("w1")
        changed["spec"]["active"] = False
        world.write(changed)
        world.write(a_pending("w0"))
        await asyncio.sleep(5)
    assert world.admitted == ["w0"]


@pytest.mark.parametrize("cordoned", [True, False], ids=["cordoned", "free"])
async def test_a_cluster_that_changes_is_a_reason_to_look_again(jumping: LoopTime, cordoned: bool) -> None:
    world = World(cpu=1)
    east = world.store.clusters.get(None, "east")
    assert east is not None
    world.store.clusters.put(merge_patch(east, {"metadata": {"resourceVersion": "2"}, "spec": {"cordoned": True}}))
    world.write(a_pending("w1"))
    async with admitting(world):
        await asyncio.sleep(1)
        assert world.admitted == []
        world.store.clusters.put(
            merge_patch(east, {"metadata": {"resourceVersion": "3"}, "spec": {"cordoned": cordoned}})
        )
        await asyncio.sleep(1)
    assert world.admitted == ([] if cordoned else ["w1"])


async def test_a_cluster_that_may_be_forgotten_or_not_takes_no_quota(jumping: LoopTime) -> None:
    world = World(cpu=1)
    world.errors = {"w1": [UnavailableError("reset")] * 1000}
    was_west = a_pending("w1")
    was_west["status"]["clusterName"] = "west"
    world.write(was_west)
    async with admitting(world):
        await asyncio.sleep(1)
        assert set(world.tried) == {("w1", False)}
        assert not dict(world.store.uncertain.items())
