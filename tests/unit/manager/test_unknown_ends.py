"""A job whose copy is gone and may have ended: it stays, gives its quota back, and runs again when activated."""

from typing import Any

import pytest
from msgspec import UNSET

from slicebus.decisions.commands import Command, Patch, Remember
from slicebus.manager.decide.admission import builtin
from slicebus.manager.decide.job import unknown_ends
from slicebus.manager.decide.kueue import beside_kueue
from slicebus.manager.decide.kueue.beside_kueue import Places
from slicebus.manager.decide.messages import message_handlers
from slicebus.manager.state.outbox import LOST, Dispatch
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Applied, JobPhase, Status
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.jobs.raycluster import RayCluster
from slicebus.slices.placement.fleet import Cluster, Fleet, Strategy
from unit.manager.objects import NOW, REF, a_job, a_view, a_workload, an_envelope, condition, shorts

Manifest = dict[str, Any]
GONE = Status(job=REF, workload="w1", spec_version=3, phase=JobPhase.GONE, seen=False)
EAST = Cluster(name="east", accepted=True, cordoned=False, connected=True)
PLACES = Places(clusters=frozenset({"east"}), fleet=Fleet([EAST], {}, {}), strategy=Strategy.SPREAD)
EVICTED = condition("Evicted", True, "Deactivated", "The workload is deactivated")
SHOWN = [
    ("train", "slicebus.dev/EndKnown=False VanishedOnWorker"),
    ("w1", "slicebus.dev/EndKnown=False VanishedOnWorker"),
]


def runs(**how: Any) -> Manifest:
    return a_workload(admitted=1, dispatched=3, applied=3, **how)


def suspended(*, applied: int) -> Manifest:
    workload = runs()
    record = Dispatch(4, "hash", cluster="east", suspended=True)
    workload["metadata"]["annotations"] |= {
        api_names.DISPATCHED_ANNOTATION: record.to_annotation(),
        api_names.APPLIED_ANNOTATION: str(applied),
    }
    return workload


def resized_and_lost(*, checks: frozenset[str] | None = None) -> JobView:
    """Evicted after a resize, with its quota given back, and its suspended copy is lost since."""
    waits = a_workload("w2", 2, replaces="w1", applied=4, conditions=(condition("Evicted"),))
    record = Dispatch(4, LOST, cluster="east", suspended=True, lost_version=4)
    waits["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
    return a_view(a_job(), runs(conditions=(condition("Finished"),)), waits, checks=checks)


MAY_HAVE_ENDED: dict[str, tuple[JobView, Any, bool]] = {
    "it ran, and went unseen": (a_view(a_job(), runs()), False, True),
    "it ran, and was seen to go": (a_view(a_job(), runs()), True, False),
    "it ran, and its agent does not report more": (a_view(a_job(), runs()), UNSET, True),
    "it has yet to be reported": (a_view(a_job(), a_workload(admitted=1, dispatched=1)), False, True),
    "its worker has yet to suspend it": (a_view(a_job(), suspended(applied=3)), False, True),
    "its worker has suspended it": (a_view(a_job(), suspended(applied=4)), False, False),
    "its worker has suspended it, nothing more is known": (
        a_view(a_job(), suspended(applied=4)),
        UNSET,
        False,
    ),
    "its worker had suspended it, and lost the copy": (resized_and_lost(), False, False),
    "a Kueue has evicted it": (resized_and_lost(checks=frozenset({"slicebus"})), False, True),
    "a Kueue has yet to admit it": (a_view(a_job(), a_workload(dispatched=1, applied=1)), False, False),
    "a slice of it had quota before": (
        a_view(a_job(), runs(conditions=(condition("Finished"),)), a_workload("w2", 2, replaces="w1")),
        False,
        True,
    ),
}


@pytest.mark.parametrize(("view", "seen", "expected"), MAY_HAVE_ENDED.values(), ids=MAY_HAVE_ENDED.keys())
def test_whether_it_may_have_ended(view: JobView, seen: Any, expected: bool) -> None:
    report = Status(job=REF, workload="w1", spec_version=3, phase=JobPhase.GONE, seen=seen)
    assert unknown_ends.may_have_ended(view, report) is expected


class World:
    """A manager's objects, on which commands are carried out."""

    def __init__(self, *workloads: Manifest, beside_kueue: bool = False) -> None:
        self.job = a_job() | {"status": {"active": 1, "ready": 1, "startTime": NOW}}
        self.workloads = {workload["metadata"]["name"]: workload for workload in workloads}
        self.beside_kueue = beside_kueue
        self.published = 0
        self.given_up = False
        self.shows = True
        """Whether the API server takes what only shows something."""

    @property
    def view(self) -> JobView:
        checks = frozenset({"slicebus"}) if self.beside_kueue else None
        return a_view(
            self.job, *self.workloads.values(), published=self.published, checks=checks, given_up=self.given_up
        )

    def take(self, message: Any) -> None:
        envelope = an_envelope()
        if isinstance(message, Status):
            self.carry_out(message_handlers.status(self.view, message, envelope, now=NOW))
        else:
            self.carry_out(message_handlers.applied(self.view, message, envelope))

    def reconcile(self) -> list[tuple[Any, ...]]:
        view = self.view
        commands = beside_kueue.reconcile(view, PLACES, NOW) if self.beside_kueue else builtin.reconcile(view, NOW)
        self.carry_out(commands)
        return shorts(commands)

    def carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Patch) and command.only_shows and not self.shows:
                continue
            if isinstance(command, Patch) and command.resource.kind == "Workload":
                name = command.target["metadata"]["name"]
                self.workloads[name] = merge_patch(self.workloads[name], command.body)
            elif isinstance(command, Patch):
                self.job = merge_patch(self.job, command.body)
            elif isinstance(command, Remember) and command.table == ManagerTable.PUBLISHED:
                self.published = command.value

    def settle(self) -> None:
        for _ in range(20):
            if not self.reconcile():
                return
        raise AssertionError("it does not come to rest")

    def status_of(self, type: str, manifest: Manifest | None = None) -> str | None:
        conditions = (manifest or self.workloads["w1"])["status"].get("conditions", ())
        return next((entry["status"] for entry in conditions if entry["type"] == type), None)


def test_it_is_shown_and_kept_from_running_before_anything_else() -> None:
    world = World(runs())
    world.take(GONE)
    assert world.reconcile() == [*SHOWN, ("warn Job", "VanishedOnWorker")]
    assert world.reconcile() == [("w1", "inactive")]
    assert world.reconcile() == [("delete to east", 4)]
    assert world.reconcile() == []


def test_what_the_job_shows_already_is_not_written_again() -> None:
    world = World(runs())
    world.take(GONE)
    [of_job, *_] = unknown_ends.stop(world.view, now=NOW)
    world.carry_out([of_job])
    assert shorts(unknown_ends.stop(world.view, now="later")) == [SHOWN[1], ("warn Job", "VanishedOnWorker")]


def test_a_slice_that_waits_to_replace_it_is_kept_from_running_too() -> None:
    world = World(runs(), a_workload("w2", 2, replaces="w1"))
    world.take(GONE)
    world.settle()
    assert [workload["spec"]["active"] for workload in world.workloads.values()] == [False, False]
    evict(world)
    assert world.reconcile() == [("w2", "Finished=True OutOfSync")]


def test_to_resume_it_is_not_enough_where_its_user_had_suspended_it() -> None:
    workload = runs()
    workload["metadata"]["annotations"][api_names.SUSPENDED_ANNOTATION] = "true"
    workload["spec"]["active"] = False
    world = World(workload)
    world.take(GONE)
    world.settle()
    stopped = world.workloads["w1"]
    assert stopped["spec"]["active"] is False
    assert api_names.SUSPENDED_ANNOTATION not in stopped["metadata"]["annotations"]


def evict(world: World) -> None:
    """What the admission cycle, or a Kueue, does with a deactivated Workload."""
    world.workloads["w1"]["status"]["conditions"].append(EVICTED)
    if world.beside_kueue:
        world.job["spec"]["suspend"] = True


def give_back(world: World) -> None:
    """What a Kueue does when the job is not active any more."""
    status = world.workloads["w1"]["status"]
    del status["admission"]
    status["conditions"] = [
        entry for entry in status["conditions"] if entry["type"] not in ("QuotaReserved", "Admitted")
    ]


def test_it_gives_its_quota_back_when_the_worker_holds_nothing() -> None:
    world = World(runs())
    world.take(GONE)
    world.settle()
    evict(world)
    world.settle()
    assert "admission" in world.workloads["w1"]["status"]
    world.take(Applied(job=REF, workload="", spec_version=4, deleted=True))
    world.settle()
    assert not world.workloads["w1"]["status"].get("admission")
    assert world.job["spec"]["suspend"] is True
    assert world.status_of("slicebus.dev/EndKnown", world.job) == world.status_of("slicebus.dev/EndKnown") == "False"
    assert "active" not in world.job["status"]
    world.take(GONE)
    assert world.reconcile() == []


def test_it_gives_its_quota_back_and_may_run_anew_where_the_job_may_show_nothing() -> None:
    world = World(runs())
    world.shows = False
    world.take(GONE)
    for _ in range(3):
        world.reconcile()
    evict(world)
    world.reconcile()
    world.take(Applied(job=REF, workload="", spec_version=4, deleted=True))
    for _ in range(3):
        world.reconcile()
    assert not world.workloads["w1"]["status"].get("admission")
    assert world.view.outbox is not None
    assert world.view.outbox.record.unknown_end is UNSET


def test_it_is_shown_as_suspended_when_its_cluster_is_given_up() -> None:
    world = World(runs())
    world.take(GONE)
    world.settle()
    evict(world)
    world.given_up = True
    world.settle()
    assert not world.workloads["w1"]["status"].get("admission")
    assert "active" not in world.job["status"]
    assert world.status_of("slicebus.dev/EndKnown", world.job) == "False"
    assert world.view.outbox is not None
    assert (world.view.outbox.record.unknown_end, world.view.outbox.record.left_copies) == (UNSET, {"east": 5})


@pytest.mark.parametrize("beside_kueue", [False, True], ids=["builtin", "beside a Kueue"])
def test_it_runs_anew_when_its_workload_is_activated_and_admitted(beside_kueue: bool) -> None:
    world = World(runs(), beside_kueue=beside_kueue)
    admission = world.workloads["w1"]["status"]["admission"]
    if beside_kueue:
        entry = {"name": "slicebus", "state": "Ready", "message": "", "lastTransitionTime": NOW}
        world.workloads["w1"]["status"]["admissionChecks"] = [entry]
        world.workloads["w1"]["metadata"]["annotations"][api_names.CLUSTER_ANNOTATION] = "east"
        world.workloads["w1"]["metadata"]["finalizers"] = [api_names.DISPATCHED_FINALIZER]
    world.take(GONE)
    world.settle()
    world.take(Applied(job=REF, workload="", spec_version=4, deleted=True))
    world.settle()
    assert world.view.outbox is not None
    assert world.view.outbox.record.unknown_end is True
    evict(world)
    world.settle()
    if beside_kueue:
        give_back(world)
        world.settle()
    assert world.view.outbox.record.unknown_end is UNSET
    workload = world.workloads["w1"]
    assert workload["spec"]["active"] is False
    workload["spec"]["active"] = True
    conditions = [
        entry for entry in workload["status"]["conditions"] if entry["type"] not in ("QuotaReserved", "Admitted")
    ]
    conditions = [entry | {"status": "False"} if entry["type"] == "Evicted" else entry for entry in conditions]
    workload["status"] |= {
        "admission": admission,
        "clusterName": "east",
        "conditions": [*conditions, condition("QuotaReserved"), condition("Admitted")],
    }
    if beside_kueue:
        workload["metadata"]["annotations"][api_names.CLUSTER_ANNOTATION] = "east"
        world.job["spec"]["suspend"] = False
    assert world.reconcile() == [("w1", "slicebus.dev/EndKnown=True StartedAnew")]
    assert ("workload-spec to east", 5) in world.reconcile() + world.reconcile()


def test_its_end_counts_when_it_is_reported_after_all() -> None:
    world = World(runs())
    world.take(GONE)
    world.settle()
    over = {"conditions": [condition("Complete")]}
    world.take(Status(job=REF, workload="w1", spec_version=3, phase=JobPhase.SUCCEEDED, job_status=over))
    assert world.reconcile() == []
    world.take(Applied(job=REF, workload="w1", spec_version=4, deleted=True))
    assert world.reconcile()[0] == ("w1", "Finished=True Succeeded")


def test_a_raycluster_that_is_suspended_shows_it_once() -> None:
    job = a_job() | {"apiVersion": "ray.io/v1", "kind": RayCluster.resource.kind, "status": {"state": "ready"}}
    job["spec"]["suspend"] = True
    world = World(runs())
    world.take(GONE)
    view = a_view(job, *world.workloads.values())
    [patch] = unknown_ends.show_suspended(view, job, now=NOW)
    assert isinstance(patch, Patch)
    shown = merge_patch(job, patch.body)
    assert (shown["status"]["state"], world.status_of("slicebus.dev/EndKnown", shown)) == ("suspended", "False")
    assert unknown_ends.show_suspended(a_view(shown, *world.workloads.values()), shown, now="later") == []
