"""A job has ended while pods of it run on: it shows its end, and its slice is charged for what runs."""

from typing import Any

import pytest

from slicebus.decisions.commands import Command, Emit, Patch, Publish
from slicebus.manager.decide.admission import builtin
from slicebus.manager.decide.kueue import kueue_status
from slicebus.manager.decide.messages import inventory, message_handlers
from slicebus.manager.decide.messages.inventory import Difference
from slicebus.manager.decide.problems import problems
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Delete, InventoryItem, JobPhase, Manifest, PodSetStatus, Status
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import status_hash
from slicebus.slices.workload.workload import Slice
from unit.manager.objects import NOW, REF, a_job, a_view, a_workload, an_envelope, condition

FAILED = {"conditions": [condition(name, message="too late") for name in ("FailureTarget", "Failed")]}


def report(running: int, phase: JobPhase = JobPhase.FAILED, *, version: int = 1, gated: int = 0) -> Status:
    pods = {"main": PodSetStatus(gated=gated, total=running + gated)}
    status = FAILED if phase.is_terminal else {}
    return Status(job=REF, workload="w1", spec_version=version, phase=phase, job_status=status, pods=pods)


class World:
    """A job of five pods that runs, and what becomes of it."""

    def __init__(self, *others: Manifest, **how: Any) -> None:
        self.job = a_job(5)
        workload = a_workload(count=5, admitted=5, **({"dispatched": 1, "applied": 1} | how))
        self.workloads = {"w1": workload, **{other["metadata"]["name"]: other for other in others}}

    @property
    def view(self) -> JobView:
        return a_view(self.job, *self.workloads.values())

    @property
    def charged(self) -> int:
        return sum(Slice.from_manifest(workload).usage.get(("spot", "cpu"), 0) for workload in self.workloads.values())

    def do(self, commands: list[Command]) -> list[Command]:
        for command in commands:
            if isinstance(command, Patch) and isinstance(command.body, dict):
                if command.target["kind"] == "Job":
                    self.job = merge_patch(self.job, command.body)
                else:
                    name = command.target["metadata"]["name"]
                    self.workloads[name] = merge_patch(self.workloads[name], command.body)
        return commands

    def tell(self, status: Status) -> list[Command]:
        return self.do(message_handlers.status(self.view, status, an_envelope(), now=NOW))

    def reconcile(self) -> list[Command]:
        return self.do(builtin.reconcile(self.view, NOW))

    def conditions(self, name: str = "w1") -> dict[str, str]:
        found = self.workloads[name]["status"].get("conditions", ())
        return {entry["type"]: entry["status"] for entry in found}


def test_it_shows_its_end_and_is_charged_for_what_runs() -> None:
    world = World()
    _, first, *rest = world.tell(report(2, gated=1))
    assert isinstance(first, Patch)
    assert first.target["kind"] == "Workload", "nobody finishes it before it says that pods are left"
    events = [command for command in rest if isinstance(command, Emit)]
    assert [(event.reason, event.note) for event in events] == [
        ("PodsLeft", "The job has ended, and 2 pods of it still run and are charged: main=2")
    ]
    assert world.job["status"]["conditions"] == FAILED["conditions"]
    assert world.charged == 2 * 1000
    assert world.reconcile() == []
    assert world.tell(report(2)) == []


def test_its_charge_only_falls_and_goes_with_the_last_pod() -> None:
    world = World()
    for running, charged in ((3, 3), (1, 1), (2, 1)):
        world.tell(report(running))
        assert world.charged == charged * 1000
    world.tell(report(0))
    world.reconcile()
    assert world.charged == 0
    assert world.conditions()["Finished"] == world.conditions()[api_names.PODS_GONE_CONDITION] == "True"


def test_a_late_report_that_it_runs_changes_nothing() -> None:
    world = World()
    world.tell(report(2))
    assert world.tell(report(5, JobPhase.RUNNING)) == []
    assert world.charged == 2000


@pytest.mark.parametrize("phase", [JobPhase.GONE, JobPhase.SUCCEEDED])
def test_a_copy_that_is_gone_has_no_pods(phase: JobPhase) -> None:
    world = World()
    world.tell(report(2))
    world.tell(report(0, phase))
    world.reconcile()
    assert world.charged == 0


def test_an_end_without_pods_waits_for_nothing() -> None:
    world = World()
    world.tell(report(0))
    assert api_names.PODS_GONE_CONDITION not in world.conditions()
    world.reconcile()
    assert world.charged == 0


def test_what_waits_to_replace_its_slice_ends_at_once() -> None:
    world = World(a_workload("w2", 9, replaces="w1"))
    world.tell(report(2))
    world.reconcile()
    assert world.conditions("w2")["Finished"] == "True"
    assert "Finished" not in world.conditions()


EVICTED = condition("Evicted", True, "Preempted", "for another")
MUST_GO: dict[str, tuple[dict[str, Any], bool]] = {
    "it has quota": ({}, False),
    "somebody preempts it": ({"conditions": (EVICTED,)}, True),
    "its newest order is under way": ({"dispatched": 2}, True),
    "somebody deletes its Workload": ({"deleting": True}, True),
}


@pytest.mark.parametrize(("how", "goes"), MUST_GO.values(), ids=MUST_GO.keys())
def test_its_copy_goes_with_its_pods_where_it_has_to(how: dict[str, Any], goes: bool) -> None:
    world = World(**how)
    world.tell(report(2, version=1))
    world.reconcile()
    orders = [command.message for command in world.reconcile() if isinstance(command, Publish)]
    assert [type(order) for order in orders] == [Delete] * goes
    assert "Finished" not in world.conditions()
    if goes:
        version = world.view.outbox.record.version  # type: ignore[union-attr]
        world.workloads["w1"]["metadata"]["annotations"][api_names.APPLIED_ANNOTATION] = str(version)
        world.reconcile()
        assert world.charged == 0


def test_a_job_that_went_before_it_showed_its_end_runs_anew() -> None:
    """The manager stopped between two writes, and the copy was withdrawn meanwhile."""
    world = World(conditions=(EVICTED,))
    [_, charged, *_] = message_handlers.status(world.view, report(2), an_envelope(), now=NOW)
    world.do([charged])
    world.reconcile()
    version = world.view.outbox.record.version  # type: ignore[union-attr]
    world.workloads["w1"]["metadata"]["annotations"][api_names.APPLIED_ANNOTATION] = str(version)
    world.reconcile()
    assert world.conditions()[api_names.PODS_GONE_CONDITION] == "True"
    assert world.view.waits_for_pods is None


def test_inventories_agree_while_pods_are_left() -> None:
    world = World()
    world.tell(report(2))
    assert world.view.outbox is not None

    def differs(left: int, **changes: Any) -> Difference:
        status = status_hash(FAILED, JobPhase.FAILED, None, left={"main": left, "none": 0})
        values = {"spec_version": 1, "spec_hash": "with the whole grant", "status_hash": status} | changes
        item = InventoryItem(kind="Job", namespace="team", name="train", uid=REF.uid, **values)
        return inventory.difference(world.view, item)

    assert differs(2) is Difference.NONE
    assert differs(1) is Difference.STATUS
    assert differs(0) is Difference.STATUS
    assert differs(2, spec_hash="", status_hash="") is Difference.STATUS
    assert inventory.difference(world.view, None) is Difference.RENEW, "its copy is lost: then it is withdrawn"


def test_explain_says_what_is_left() -> None:
    world = World()
    world.tell(report(1))
    found = list(problems(ManagerStore(), world.view))
    assert "JobEnded: The job has ended, and 1 pod of it still runs and is charged: main=1" in found


def test_beside_a_kueue_the_end_waits_for_the_pods() -> None:
    """Kueue gives the quota of all of them back with it."""
    view = a_view(a_job(5), a_workload(count=5, admitted=5, dispatched=1, applied=1), checks=frozenset({"slicebus"}))
    assert kueue_status.take(view, report(2), NOW) == []
    assert kueue_status.take(view, report(0), NOW) != []
