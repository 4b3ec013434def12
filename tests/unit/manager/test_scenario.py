"""Any scenario of one job, decided by the real functions: requests, admissions, losses, crashes, deletions, the end.

The manager's objects are in memory, the worker is a model of an agent, and the messages between them may be lost,
doubled and late. Whatever has happened, the rules hold at every step, and in the end the worker holds what it shall.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicebus.decisions.commands import Command, Create, Patch, Publish, Remember
from slicebus.kube.cache import Change
from slicebus.manager.decide.admission import admission_writes, builtin, requesting
from slicebus.manager.decide.admission.change_filter import needs_reconcile
from slicebus.manager.decide.messages import message_handlers
from slicebus.manager.state.annotations import size_requests_of
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.views import JobView
from slicebus.proto.errors import ConflictError
from slicebus.proto.messages import Applied, Counts, Delete, Message, Relabel, ScaleRequest, WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.cycle import Admit
from slicebus.slices.workload.workload import Admission, FlavorName, PodSetAssignment, Slice
from unit.manager.objects import NOW, REF, a_job, a_view, an_envelope, condition

Manifest = dict[str, Any]


class Worker:
    """What an agent holds for the job."""

    def __init__(self) -> None:
        self.slice = ""
        self.version = 0
        self.granted: Counts = {}
        self.tombstone = 0

    def take(self, message: Message) -> Applied | None:
        match message:
            case Delete(spec_version=version):
                self.tombstone = max(self.tombstone, version)
                if self.version <= self.tombstone:
                    self.slice, self.version, self.granted = "", 0, {}
            case WorkloadSpec() | Relabel() if message.spec_version <= self.tombstone:
                pass
            case WorkloadSpec(spec_version=version, granted=granted):
                name = message.workload["metadata"]["name"]
                if not self.slice or (self.slice == name and version > self.version):
                    self.slice, self.version, self.granted = name, version, granted
            case Relabel(spec_version=version, to_workload=name, granted=granted):
                if self.slice and version > self.version:
                    self.slice, self.version, self.granted = name, version, granted
            case _:
                return None
        if not self.slice and self.tombstone:
            return Applied(job=REF, workload="", spec_version=self.tombstone, deleted=True)
        return Applied(job=REF, workload=self.slice, spec_version=self.version)


def version_of(manifest: Manifest) -> str:
    version: str = manifest["metadata"]["resourceVersion"]
    return version


class World:
    """The manager's objects, what it has published, and the worker."""

    def __init__(self) -> None:
        self.job: Manifest | None = a_job()
        self.workloads: dict[str, Manifest] = {}
        self.published = 0
        self.wire: list[Message] = []
        self.versions: dict[int, tuple[str, Counts]] = {}
        self.worker = Worker()
        self.made = 0
        self.generation = 0
        self.asks = True
        """Whether anything has happened since the last reconcile that asks for another."""

    @property
    def view(self) -> JobView:
        view = a_view(self.job, *self.workloads.values(), published=self.published)
        # What a job keeps of requests after its last Workload is none of a Workload's: `a_view` would read it so.
        return msgspec.structs.replace(view, ref=REF, requests=size_requests_of(self.workloads))

    def settle(self) -> None:
        for _ in range(10):
            commands = builtin.reconcile(self.view, NOW)
            assert self.asks or not commands, f"the job is not reconciled, and there is something to do: {commands}"
            self.asks = False
            self.run(commands)
            self.check()
            if not commands:
                return
        raise AssertionError(f"the manager does not come to rest: {commands}")

    def run(self, commands: Sequence[Command]) -> None:
        """As the executor: the first conflict ends it, and what is left is decided again."""
        try:
            for command in commands:
                self.carry_out(command)
        except ConflictError:
            self.asks = True

    def carry_out(self, command: Command) -> None:
        match command:
            case Create(manifest=manifest):
                self.made += 1
                name = manifest["metadata"]["name"]
                assert name not in self.workloads
                own = {"uid": f"uid-{name}", "creationTimestamp": f"{self.made:05}", "generation": 1}
                made = manifest | {"metadata": manifest["metadata"] | own | {"resourceVersion": "0"}}
                self.store(made, is_own=True)
            case Patch(target=target, body=body):
                present = self.job if target["kind"] == "Job" else self.workloads.get(target["metadata"]["name"])
                if present is None or version_of(present) != version_of(target):
                    raise ConflictError(target["metadata"]["name"])
                self.store(merge_patch(present, body), is_own=True)
            case Remember(table=ManagerTable.PUBLISHED, value=version):
                self.published = version
            case Publish(message=message):
                if isinstance(message, WorkloadSpec | Delete):
                    held = (
                        getattr(message, "workload", {}).get("metadata", {}).get("name", ""),
                        getattr(message, "granted", {}),
                    )
                    assert self.versions.setdefault(message.spec_version, held) == held, "one version, two contents"
                self.wire.append(message)

    def store(self, manifest: Manifest, *, is_own: bool = False) -> None:
        metadata = manifest["metadata"]
        manifest |= {"metadata": metadata | {"resourceVersion": str(int(metadata["resourceVersion"]) + 1)}}
        if manifest["kind"] == "Job":
            change = Change(self.job, manifest, is_own)
            self.job = manifest
        elif "deletionTimestamp" in metadata and not metadata["finalizers"]:
            before = self.view.requested
            change = Change(self.workloads.pop(metadata["name"], None), None)
            if any(not (slice.finished or slice.deleting) for slice in self.view.slices):
                assert self.view.requested == before, "the request goes with its slice"
        else:
            change = Change(self.workloads.get(metadata["name"]), manifest, is_own)
            self.workloads[metadata["name"]] = manifest
        self.asks |= needs_reconcile(change)

    def check(self) -> None:
        """The rules that hold at every step."""
        unfinished = [slice for slice in self.view.slices if not slice.finished and not slice.deleting]
        assert len(unfinished) <= 2
        assert sum(slice.admitted for slice in unfinished) <= 2

    def admit(self) -> None:
        """Quota for the oldest slice that waits, as the cycle would give it."""
        for slice in self.view.slices:
            if slice.pending:
                replaced = self.view.holder
                if replaced is not None and replaced.key != slice.replaces:
                    continue
                self.run(admission_writes.commands(self.view, slice, self.verdict(slice), now=NOW))
                return

    def verdict(self, slice: Slice) -> Admit:
        given = tuple(
            PodSetAssignment(name=name, flavors={"cpu": FlavorName("spot")}, usage={"cpu": count}, count=count)
            for name, count in slice.counts.items()
        )
        return Admit(key=slice.key, admission=Admission(cluster_queue="cq", pod_sets=given), cluster="east")

    def act(self, event: tuple[str, int]) -> None:
        what, number = event
        match what:
            case "request":
                self.desired(number)
            case "edit" if self.job is not None and "deletionTimestamp" not in self.job["metadata"]:
                generation = self.job["metadata"]["generation"] + 1
                self.store(
                    merge_patch(self.job, {"metadata": {"generation": generation}, "spec": {"parallelism": number}})
                )
            case "admit":
                self.admit()
            case "deliver" if self.wire:
                self.receive(self.wire.pop(number % len(self.wire)))
            case "deliver twice" if self.wire:
                self.receive(self.wire[number % len(self.wire)])
            case "restart":
                self.published, self.asks = 0, True
            case "delete a workload" if self.workloads:
                name = sorted(self.workloads)[number % len(self.workloads)]
                self.store(merge_patch(self.workloads[name], {"metadata": {"deletionTimestamp": NOW}}))
        self.settle()

    def desired(self, number: int) -> None:
        if self.worker.slice:
            self.generation += 1
            request = ScaleRequest(
                job=REF,
                workload=self.worker.slice,
                worker_uid="w",
                worker_generation=self.generation,
                granted=self.worker.granted,
                wanted={"main": number},
            )
            recorded = message_handlers.scale_request(self.view, request, an_envelope())
            self.run(requesting.with_slice(self.view, recorded, lambda after: builtin.reconcile(after, NOW)))

    def receive(self, message: Message) -> None:
        report = self.worker.take(message)
        if report is not None:
            self.run(message_handlers.applied(self.view, report, an_envelope()))

    def calm_down(self) -> None:
        """No more losses: every message arrives, in order, after the agent has said hello."""
        self.act(("restart", 0))
        for _ in range(200):
            before = self.view
            self.act(("admit", 0))
            self.act(("deliver", 0))
            if not self.wire and self.view == before:
                break
        assert not self.wire
        self.act(("restart", 0))
        assert not self.wire, "something is published although it is applied"


EVENTS = st.tuples(
    st.sampled_from(
        ["request", "request", "edit", "admit", "admit", "deliver", "deliver", "deliver twice", "restart", "lose"]
    ),
    st.integers(0, 4),
)
DELETIONS = st.tuples(st.just("delete a workload"), st.integers(0, 4))


@settings(max_examples=60)
@given(events=st.lists(EVENTS, max_size=40))
def test_in_the_end_the_worker_holds_the_wanted_size(events: list[tuple[str, int]]) -> None:
    world = World()
    world.settle()
    for event in events:
        world.act(event)
    world.calm_down()
    view = world.view
    assert view.holder is not None
    assert world.worker.slice == view.holder.name
    assert world.worker.granted == view.holder.granted == view.holder.counts
    assert [slice.name for slice in view.slices if not slice.finished] == [view.holder.name]


@settings(max_examples=40)
@example(events=[("admit", 0), ("edit", 2), ("admit", 0), ("delete a workload", 0), ("edit", 0)])
@given(events=st.lists(st.one_of(EVENTS, DELETIONS), max_size=40))
def test_whatever_is_deleted_comes_back(events: list[tuple[str, int]]) -> None:
    world = World()
    world.settle()
    for event in events:
        world.act(event)
    world.calm_down()
    view = world.view
    assert view.holder is not None
    assert world.worker.slice == view.holder.name
    assert world.worker.granted == view.holder.granted


AUDIT = "example.com/audit"
ENDS = st.sampled_from(["deleted", "gone", "Complete", "Failed"])


@settings(max_examples=40)
@given(before=st.lists(EVENTS, max_size=25), end=ENDS, after=st.lists(EVENTS, max_size=10))
def test_nothing_is_left_after_the_end(before: list[tuple[str, int]], end: str, after: list[tuple[str, int]]) -> None:
    world = World()
    world.settle()
    for event in before:
        world.act(event)
    assert world.job is not None
    if end == "gone":
        world.job, world.asks = None, True
    elif end == "deleted":
        world.store(merge_patch(world.job, {"metadata": {"deletionTimestamp": NOW}}))
    else:
        world.store(merge_patch(world.job, {"status": {"conditions": [condition(end)]}}))
    for event in after:
        world.act(event)
    world.calm_down()
    assert world.worker.slice == ""
    assert all(not workload["metadata"]["finalizers"] for workload in world.workloads.values())


@settings(max_examples=40)
@given(events=st.lists(EVENTS, max_size=30), end=ENDS)
def test_what_others_keep_has_no_quota(events: list[tuple[str, int]], end: str) -> None:
    """A finalizer of somebody else is on each Workload, and on the job."""
    world = World()
    world.settle()
    for event in events:
        world.act(event)
    for workload in [*world.workloads.values()]:
        kept = [*workload["metadata"]["finalizers"], AUDIT]
        world.store(merge_patch(workload, {"metadata": {"finalizers": kept}}))
    assert world.job is not None
    if end == "gone":
        world.job, world.asks = None, True
        for workload in [*world.workloads.values()]:
            world.store(merge_patch(workload, {"metadata": {"deletionTimestamp": NOW}}))
    elif end == "deleted":
        world.store(merge_patch(world.job, {"metadata": {"deletionTimestamp": NOW, "finalizers": [AUDIT]}}))
    else:
        world.store(merge_patch(world.job, {"status": {"conditions": [condition(end)]}}))
    world.calm_down()
    assert world.worker.slice == ""
    assert all(slice.finished or slice.admission is None for slice in world.view.slices)
