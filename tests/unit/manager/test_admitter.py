"""The admitter's writes: an unanswered one stays charged, and a refused one does not stop the others."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.decisions.decider import Decider
from slicebus.kube.failures import error_of
from slicebus.kube.resources import JOBS
from slicebus.manager.act.admitter import Admitter
from slicebus.manager.decide import catalog
from slicebus.manager.state.store import ManagerStore, owner_ref
from slicebus.proto.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    SlicebusError,
    ThrottledError,
    UnavailableError,
    WebhookError,
)
from slicebus.proto.messages import JobRef
from slicebus.runtime.locks import Locks
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.lines import FRONT
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.workload import SliceKey
from unit.kube.loop_time import LoopTime
from unit.manager.objects import a_job, a_workload, condition

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


def a_queue(cpu: int, version: int = 1, **more: Any) -> Manifest:
    flavors = [{"name": "spot", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    return named("cq", spec, metadata={"resourceVersion": str(version)}, **more)


class World:
    """A store with a quota, and writes that go as a test has it. One that does not know the newest version fails."""

    def __init__(self, cpu: int) -> None:
        self.store = ManagerStore()
        self.store.flavors.put(named("spot", {}))
        self.store.cluster_queues.put(a_queue(cpu))
        self.store.local_queues.put(named("queue", {"clusterQueue": "cq"}, metadata={"namespace": "team"}))
        connected = {"conditions": [condition("Connected")]}
        self.store.clusters.put(named("east", {"accepted": True, "capacity": "Unlimited"}, status=connected))
        self.errors: dict[str, list[SlicebusError]] = {}
        self.tried: list[tuple[str, bool]] = []
        self.said: list[Emit] = []
        """The Events about refused writes."""
        self.write_s = 0.0
        """How long a write is under way."""
        self.refuses: dict[str, SlicebusError] = {}
        """The slices whose admissions are refused, and why."""
        self.hangs: dict[str, float] = {}
        """The slices whose writes take longer, and how long."""
        self.ordered: list[JobRef] = []
        """The jobs whose orders are to go out."""
        self.locks = Locks[JobRef]()
        self._version = 100

    async def run(self, commands: Sequence[Command], *, caused_by: Any = None) -> None:
        """As the executor."""
        for command in commands:
            if isinstance(command, Emit) and command.reason == "AdmissionRefused":
                self.said.append(command)
            if isinstance(command, Patch):
                name = command.target["metadata"]["name"]
                self.tried.append((name, "admission" in command.body["status"]))
                await asyncio.sleep(self.hangs.get(name, self.write_s))
                if command.target["metadata"]["resourceVersion"] != self.store.version_of(SliceKey(f"team/{name}")):
                    raise ConflictError("409")
                if name in self.refuses and "admission" in command.body["status"]:
                    raise self.refuses[name]
                if self.errors.get(name):
                    raise self.errors[name].pop(0)
                self.write(merge_patch(command.target, command.body))

    def write(self, workload: Manifest) -> None:
        self._version += 1
        self.store.workloads.put(merge_patch(workload, {"metadata": {"resourceVersion": str(self._version)}}))

    def submit(self, name: str) -> JobRef:
        """A job, and its first slice."""
        workload = a_pending(name)
        ref = owner_ref(workload)
        assert ref is not None
        self.store.cache_of(JOBS).put(merge_patch(a_job(), {"metadata": {"name": ref.name, "uid": ref.uid}}))
        self.write(workload)
        return ref

    def resize(self, name: str, count: int) -> None:
        """The job of a slice wants another size."""
        workload = self.workload(name)
        pod_sets = [pod_set | {"count": count} for pod_set in workload["spec"]["podSets"]]
        self.write(merge_patch(workload, {"spec": {"podSets": pod_sets}}))

    def workload(self, name: str) -> Manifest:
        workload = self.store.workloads.get("team", name)
        assert workload is not None
        return workload

    @property
    def charged(self) -> dict[str, int]:
        """By slice, of how many pods it was admitted."""
        slices = self.store.slices.values()
        return {slice.name: slice.admission.counts["main"] for slice in slices if slice.admission is not None}

    @property
    def admitted(self) -> list[str]:
        return sorted(slice.name for slice in self.store.slices.values() if slice.admitted)


@asynccontextmanager
async def admitting(
    world: World, *, writers: int = 16, registry: CollectorRegistry | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(
        Admitter(
            Decider(world.store),
            world,
            locks=world.locks,
            registry=registry or CollectorRegistry(),
            writers=writers,
            admitted=world.ordered.append,
        ).run()
    )
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("is_taken", [False, True])
async def test_an_admission_carries_its_order_unless_somebody_else_has_the_turn_of_the_job(
    jumping: LoopTime, is_taken: bool
) -> None:
    """The order of an earlier slice may be under way then, and would have the same version."""
    world = World(cpu=1)
    ref = world.submit("w1")
    async with world.locks.of(ref) if is_taken else nullcontext(), admitting(world):
        await asyncio.sleep(1)
    assert world.admitted == ["w1"]
    assert (api_names.ORDER_CONDITION in world.store.slices[SliceKey("team/w1")].conditions) is not is_taken


async def test_nobody_else_has_the_turn_of_a_job_while_its_admission_is_written(jumping: LoopTime) -> None:
    world = World(cpu=1)
    world.write_s = 1.0
    ref = world.submit("w1")
    async with admitting(world):
        await asyncio.sleep(0.5)
        assert world.admitted == []
        async with world.locks.of(ref):
            assert world.admitted == ["w1"]


async def test_what_fits_is_admitted_and_the_rest_waits(jumping: LoopTime) -> None:
    world = World(cpu=1)
    for name in ("w1", "w2"):
        world.write(a_pending(name))
    async with admitting(world):
        await asyncio.sleep(5)
    assert world.admitted == ["w1"]
    assert world.tried == [("w1", True), ("w2", False)]
    assert [job.uid for job in world.ordered] == [world.workload("w1")["metadata"]["ownerReferences"][0]["uid"]]


async def test_each_cycle_that_decides_something_is_measured(jumping: LoopTime) -> None:
    world, registry = World(cpu=1), CollectorRegistry()
    async with admitting(world, registry=registry):
        await asyncio.sleep(5)
        assert registry.get_sample_value("slicebus_admission_cycle_seconds_count") == 0, "nobody waits"
        world.write(a_pending("w1"))
        await asyncio.sleep(5)
    assert (registry.get_sample_value("slicebus_admission_cycle_seconds_count") or 0) >= 1


async def test_one_that_the_server_refuses_holds_up_no_other(jumping: LoopTime) -> None:
    world = World(cpu=2)
    world.errors = {"w1": [InvalidError("422")] * 100}
    for name in ("w1", "w2"):
        world.write(a_pending(name))
    async with admitting(world) as task:
        await asyncio.sleep(5)
        assert not task.done()
    assert world.admitted == ["w2"]


@pytest.mark.parametrize("error", [ForbiddenError("403"), InvalidError("422")], ids=repr)
async def test_one_that_was_refused_is_said_and_admitted_when_the_server_takes_it(
    jumping: LoopTime, error: SlicebusError
) -> None:
    world = World(cpu=1)
    world.errors = {"w1": [error] * 3}
    world.submit("w1")
    async with admitting(world):
        await asyncio.sleep(1)
        assert [(event.reason, event.regarding["kind"]) for event in world.said] == [("AdmissionRefused", "Job")]
        await asyncio.sleep(100)
    assert world.admitted == ["w1"]
    assert len(world.said) == 3


async def test_a_webhook_that_stays_down_is_said_and_the_slice_is_admitted_soon_after_it(jumping: LoopTime) -> None:
    world = World(cpu=1)
    world.errors = {"w1": [WebhookError("500")]}
    world.submit("w1")
    async with admitting(world):
        await asyncio.sleep(1)
        assert world.admitted == ["w1"]
        assert world.said == [], "it was away for a moment"
        world.errors = {"w2": [WebhookError("500")] * 100}
        world.submit("w2")
        world.store.cluster_queues.put(a_queue(2, 2))
        await asyncio.sleep(60)
        assert {(event.reason, event.regarding["metadata"]["name"]) for event in world.said} == {
            ("AdmissionRefused", "w2")
        }
        world.errors.clear()
        await asyncio.sleep(10)
    assert world.admitted == ["w1", "w2"]


async def test_a_server_that_fails_at_an_admission_for_long_is_said(jumping: LoopTime) -> None:
    """The admission may have been written or not, so its quota is held for as long."""
    fails = error_of(500, b'{"message": "etcdserver: request is too large", "reason": ""}')
    world = World(cpu=1)
    world.errors = {"w1": [fails] * 1000}
    world.submit("w1")
    async with admitting(world):
        await asyncio.sleep(10)
        assert world.said == []
        await asyncio.sleep(30)
        assert {(event.reason, event.note) for event in world.said} == {("AdmissionRefused", str(fails))}
        world.errors.clear()
        await asyncio.sleep(60)
    assert world.admitted == ["w1"]


async def test_one_that_stays_refused_is_not_tried_ever_more_often(jumping: LoopTime) -> None:
    """Whatever changes in its tree has it tried again, and no such change has more than one try after it."""
    world = World(cpu=1)
    world.errors = {"w1": [ForbiddenError("403")] * 100_000}
    world.submit("w1")
    async with admitting(world):
        for version in range(2, 62):
            world.store.cluster_queues.put(a_queue(1, version))
            await asyncio.sleep(10.3)
        tried = len(world.tried)
        await asyncio.sleep(600)
    assert len(world.tried) - tried <= 21


ALWAYS = {
    "conflicts": ConflictError("409"),
    "is throttled": ThrottledError("429"),
    "has a webhook that is down": WebhookError("500"),
}


@pytest.mark.parametrize("error", ALWAYS.values(), ids=ALWAYS.keys())
async def test_a_write_that_fails_again_and_again_is_tried_less_often_and_holds_up_no_other(
    jumping: LoopTime, error: SlicebusError
) -> None:
    world = World(cpu=2)
    world.errors = {"w1": [error] * 100_000}
    world.write(a_pending("w1"))
    async with admitting(world):
        await asyncio.sleep(300)
        tries = len(world.tried)
        await asyncio.sleep(600)
        assert 60 <= len(world.tried) - tries <= 200, "about every seven seconds"
        tries = len(world.tried)
        world.write(a_pending("w2"))
        await asyncio.sleep(0.01)
        assert world.admitted == ["w2"]
        assert len(world.tried) <= tries + 2
        world.errors.clear()
        await asyncio.sleep(10)
    assert world.admitted == ["w1", "w2"]


async def test_a_server_that_asks_for_a_pause_is_left_alone_so_long(jumping: LoopTime) -> None:
    world, throttled = World(cpu=1), ThrottledError("429")
    throttled.retry_after_s = 20.0
    world.errors = {"w1": [throttled]}
    world.write(a_pending("w1"))
    async with admitting(world):
        await asyncio.sleep(19)
        assert len(world.tried) == 1
        await asyncio.sleep(2)
    assert world.admitted == ["w1"]


async def test_two_writes_of_one_tree_that_fail_are_both_tried_again(jumping: LoopTime) -> None:
    """The tree has one timer, which the shorter pause sets."""
    world = World(cpu=2)
    world.errors = {"w1": [ThrottledError("429")] * 6, "w2": []}
    world.write(a_pending("w1"))
    async with admitting(world):
        await asyncio.sleep(4)
        world.errors["w2"] = [ThrottledError("429")]
        world.write(a_pending("w2"))
        await asyncio.sleep(30)
    assert world.admitted == ["w1", "w2"]


async def test_a_slice_that_another_writes_again_and_again_does_not_keep_the_admitter_busy(jumping: LoopTime) -> None:
    """A controller that never rests changes the Workload between each decision and its write."""
    world = World(cpu=2)
    world.write(a_pending("w1"))

    async def restless(commands: Sequence[Command], *, caused_by: Any = None) -> None:
        world.tried.append(("w1", True))
        world.write(merge_patch(world.workload("w1"), {"spec": {"priority": len(world.tried)}}))
        raise ConflictError("409")

    run, world.run = world.run, restless  # type: ignore[method-assign]
    async with admitting(world):
        await asyncio.sleep(600)
        assert len(world.tried) <= 200
        world.run = run  # type: ignore[method-assign]
        await asyncio.sleep(10)
    assert world.admitted == ["w1"]


async def test_an_error_of_the_program_ends_the_admitter_by_itself(jumping: LoopTime) -> None:
    """Whatever else waits to be written then."""
    world = World(cpu=9)
    world.errors = {"w1": [ArithmeticError("it is wrong")]}  # type: ignore[list-item]
    world.write_s, world.hangs = 0.1, {"w0": 30.0}
    for number in range(9):
        world.write(a_pending(f"w{number}"))
    async with admitting(world, writers=2) as task:
        await asyncio.wait([task])
        [error] = leaves(task.exception())
        assert isinstance(error, ArithmeticError)


def leaves(error: BaseException | None) -> list[BaseException | None]:
    return (
        [leaf for each in error.exceptions for leaf in leaves(each)]
        if isinstance(error, BaseExceptionGroup)
        else [error]
    )


async def test_a_write_that_hangs_holds_up_no_other(jumping: LoopTime) -> None:
    """Each cycle waited for all of its writes: a webhook for one namespace that hung held up everybody else."""
    world = World(cpu=9)
    world.hangs, world.errors = {"w1": 30.0}, {"w1": [WebhookError("500")] * 100}
    for name in ("w1", "w2"):
        world.write(a_pending(name))
    async with admitting(world):
        await asyncio.sleep(0.01)
        assert world.admitted == ["w2"]
        world.write(a_pending("w3"))
        await asyncio.sleep(1)
        assert world.admitted == ["w2", "w3"], "it is known after a second"
        for number in range(4, 8):
            await asyncio.sleep(17)
            world.write(a_pending(f"w{number}"))
            await asyncio.sleep(0.01)
            assert f"w{number}" in world.admitted
        world.hangs.clear()
        world.errors.clear()
        await asyncio.sleep(45)
        assert "w1" in world.admitted


async def test_more_that_hang_than_are_written_at_once_hold_up_no_other(jumping: LoopTime) -> None:
    world = World(cpu=100)
    names = [f"w{number}" for number in range(80)]
    world.hangs, world.errors = dict.fromkeys(names, 30.0), {name: [WebhookError("500")] * 100 for name in names}
    for name in names:
        world.write(a_pending(name))
    async with admitting(world, writers=4):
        await asyncio.sleep(60)
        for number in range(5):
            world.write(a_pending(f"x{number}"))
            await asyncio.sleep(0.5)
            assert f"x{number}" in world.admitted
            await asyncio.sleep(6.5)
        world.hangs.clear()
        world.errors.clear()
        await asyncio.sleep(60)
    assert len(world.admitted) == 85


async def test_an_admission_that_hangs_keeps_its_quota_until_it_is_answered(jumping: LoopTime) -> None:
    world = World(cpu=1)
    world.hangs, world.errors = {"w1": 30.0}, {"w1": [InvalidError("422")]}
    world.write(a_pending("w1"))
    async with admitting(world):
        await asyncio.sleep(5)
        world.write(a_pending("w0"))
        await asyncio.sleep(20)
        assert ("w0", True) not in world.tried, "the quota was given twice"
        world.write(merge_patch(world.workload("w1"), {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        await asyncio.sleep(6)
        assert not dict(world.store.uncertain.items())
        assert world.admitted == ["w0"]


async def test_an_admission_that_has_hung_before_keeps_its_quota_at_once(jumping: LoopTime) -> None:
    """No cycle waits for it."""
    world = World(cpu=1)
    world.hangs, world.errors = {"w1": 30.0}, {"w1": [WebhookError("500")]}
    world.write(a_pending("w1"))
    async with admitting(world):
        for number in range(60):
            world.write(
                merge_patch(a_pending(f"x{number}"), {"metadata": {"creationTimestamp": "2027-01-01T00:00:00Z"}})
            )
            await asyncio.sleep(1.7)
        await asyncio.sleep(60)
        assert [name for name, is_admission in world.tried if is_admission] == ["w1"] * 2, "the quota was given twice"
        assert world.admitted == ["w1"]


@pytest.mark.parametrize("is_answered", [True, False])
async def test_an_edit_of_its_quota_while_an_admission_hangs_is_not_lost(jumping: LoopTime, is_answered: bool) -> None:
    world = World(cpu=1)
    world.hangs, world.errors = {"w1": 30.0}, {"w1": [] if is_answered else [UnavailableError("reset")] * 9}
    world.write(a_pending("w1"))
    async with admitting(world):
        await asyncio.sleep(5)
        world.store.cluster_queues.put(a_queue(0, version=2))
        await asyncio.sleep(600)
        assert world.admitted == (["w1"] if is_answered else [])
        assert [is_admission for _, is_admission in world.tried].count(True) == 1, "it is not sent after the edit"
        assert not dict(world.store.uncertain.items())


async def test_a_conflict_is_decided_again(jumping: LoopTime) -> None:
    world = World(cpu=1)
    world.errors = {"w1": [ConflictError("409")]}
    world.write(a_pending("w1"))
    async with admitting(world):
        await asyncio.sleep(5)
    assert world.admitted == ["w1"]


async def test_an_admission_without_an_answer_keeps_its_quota_until_it_is_certain(jumping: LoopTime) -> None:
    world = World(cpu=1)
    world.errors = {"w1": [UnavailableError("reset")] * 4}
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


async def test_an_unanswered_admission_is_called_off_when_its_quota_is_edited(jumping: LoopTime) -> None:
    world = World(cpu=1)
    world.errors = {"w1": [UnavailableError("reset")] * 4}
    world.write(a_pending("w1"))
    async with admitting(world):
        await asyncio.sleep(0.3)
        world.store.cluster_queues.put(a_queue(0, version=2))
        await asyncio.sleep(5)
        assert world.admitted == []
        sent = [is_admission for _, is_admission in world.tried]
        assert sent == sorted(sent, reverse=True), "the admission is not sent after the edit"
        assert not dict(world.store.uncertain.items())
        world.store.cluster_queues.put(a_queue(1, version=3))
        await asyncio.sleep(5)
    assert world.admitted == ["w1"]


@pytest.mark.parametrize("cordoned", [True, False], ids=["cordoned", "free"])
async def test_an_edited_cluster_starts_another_cycle(jumping: LoopTime, cordoned: bool) -> None:
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


BURST = [f"w{number}" for number in range(1, 21)]


@pytest.mark.parametrize("writers", [1, 4, 16])
async def test_a_slice_that_changes_while_its_decision_waits_is_decided_again(jumping: LoopTime, writers: int) -> None:
    world = World(cpu=27)
    world.write_s = 0.1
    for name in BURST:
        world.write(a_pending(name))
    world.resize("w19", 2)
    async with admitting(world, writers=writers):
        await asyncio.sleep(0.05)
        assert len(world.tried) == writers, "the rest waits for a writer"
        world.resize("w18", 8)
        world.resize("w19", 1)
        await asyncio.sleep(10)
    assert world.charged == dict.fromkeys(BURST, 1) | {"w18": 8}
    assert sorted(world.tried) == sorted((name, True) for name in BURST), "nothing is written that is out of date"


@pytest.mark.parametrize("label", [None, "another-job"])
async def test_a_workload_is_of_its_owner_whatever_its_label_says(jumping: LoopTime, label: str | None) -> None:
    world = World(cpu=2)
    world.write(merge_patch(a_pending("w1"), {"metadata": {"labels": {kueue.JOB_UID_LABEL: label}}}))
    world.write(a_pending("w2"))
    async with admitting(world):
        await asyncio.sleep(5)
    assert world.admitted == ["w1", "w2"]


async def test_a_slice_that_only_has_another_version_is_not_forgotten(jumping: LoopTime) -> None:
    world = World(cpu=2)
    world.write_s = 0.1
    for name in ("w1", "w2"):
        world.write(a_pending(name))
    async with admitting(world, writers=1):
        await asyncio.sleep(0.05)
        world.write(merge_patch(world.workload("w2"), {"metadata": {"annotations": {"of": "somebody"}}}))
        await asyncio.sleep(5)
    assert world.admitted == ["w1", "w2"]


async def test_an_unanswered_admission_waits_for_its_turn_with_its_version(jumping: LoopTime) -> None:
    world = World(cpu=4)
    world.write_s = 0.5
    world.errors = {"w2": [UnavailableError("reset")]}
    world.write(a_pending("w2"))
    async with admitting(world, writers=1):
        await asyncio.sleep(0.55)
        world.write(a_pending("w0"))
        await asyncio.sleep(0.1)
        world.write(a_pending("w1"))
        await asyncio.sleep(0.6)
        assert world.tried == [("w2", True), ("w0", True), ("w1", True)], "it waits behind another"
        world.resize("w2", 2)
        await asyncio.sleep(5)
    assert world.charged == {"w0": 1, "w1": 1, "w2": 2}
    assert world.tried == [("w2", True), ("w0", True), ("w1", True), ("w2", True)]


def cordon(world: World) -> None:
    east = world.store.clusters.get(None, "east")
    world.store.clusters.put(merge_patch(east, {"metadata": {"resourceVersion": "2"}, "spec": {"cordoned": True}}))


def stop(world: World) -> None:
    spec = {"clusterQueue": "cq", "stopPolicy": "Hold"}
    world.store.local_queues.put(named("queue", spec, metadata={"namespace": "team", "resourceVersion": "2"}))


EDITS: dict[str, tuple[Callable[[World], None], int]] = {
    "less quota": (lambda world: world.store.cluster_queues.put(a_queue(6, version=2)), 6),
    "a stop": (stop, 5),
    "a cordon": (cordon, 5),
    "a status": (lambda world: world.store.cluster_queues.put(a_queue(20, version=2, status={"reserving": 4})), 20),
}


@pytest.mark.parametrize(("edit", "admitted"), EDITS.values(), ids=EDITS.keys())
async def test_what_waits_is_decided_again_when_the_quota_changes(
    jumping: LoopTime, edit: Callable[[World], None], admitted: int
) -> None:
    world = World(cpu=20)
    world.write_s = 0.1
    for name in BURST:
        world.write(a_pending(name))
    async with admitting(world, writers=1):
        await asyncio.sleep(0.45)
        edit(world)
        await asyncio.sleep(10)
    assert len(world.admitted) == admitted
    assert {name for name, _ in world.tried} == set(BURST), "the others show why they wait"
    assert len(world.tried) <= len(BURST) + FRONT, "of those that are left some are told numbers"


@pytest.mark.decisions_fail
async def test_a_tree_of_quota_that_is_set_aside_is_not_tried_ever_more_often(
    jumping: LoopTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, tries = World(cpu=1), list[float]()

    def raising(_: Any) -> Any:
        tries.append(asyncio.get_running_loop().time())
        raise KeyError("spot")

    monkeypatch.setattr(catalog.admission, "cycle", raising)
    world.submit("w1")
    async with admitting(world):
        for version in range(2, 32):
            world.store.cluster_queues.put(a_queue(1, version))
            await asyncio.sleep(10.3)
        tries.clear()
        await asyncio.sleep(600)
    assert len(tries) <= 3 * 11, "all together, and each of the two alone"


@pytest.mark.decisions_fail
async def test_a_tree_of_quota_whose_decision_raises_holds_up_no_other(
    jumping: LoopTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, cycle, raises = World(cpu=5), catalog.admission.cycle, True

    def stumbling(snapshot: Any) -> Any:
        if raises and "other" in snapshot.cluster_queues:
            raise KeyError("spot")
        return cycle(snapshot)

    monkeypatch.setattr(catalog.admission, "cycle", stumbling)
    other = a_queue(5)
    world.store.cluster_queues.put(other | {"metadata": other["metadata"] | {"name": "other", "uid": "other"}})
    of_other = named("queue-2", {"clusterQueue": "other"}, metadata={"namespace": "team"})
    world.store.local_queues.put(of_other)
    world.submit("w1")
    world.write(merge_patch(a_pending("w2"), {"spec": {"queueName": "queue-2"}}))
    async with admitting(world) as task:
        await asyncio.sleep(10)
        assert world.admitted == ["w1"]
        raises = False
        await asyncio.sleep(120)
        assert world.admitted == ["w1", "w2"]
        assert not task.done()
