"""What the decisions of an admission cycle write."""

from typing import Any

import msgspec
import pytest

from slicebus.decisions.commands import Emit, Patch, Remember
from slicebus.manager.decide.admission import admission_writes
from slicebus.manager.state.tables import ManagerTable
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.cycle import Admit, Evict, Wait
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.workload.workload import Admission, FlavorName, PodSetAssignment, Slice, SliceKey
from unit.manager.objects import NOW, a_job, a_view, a_workload, asking, condition, shorts

LATER = "2026-01-31T13:00:00Z"
ADMISSION = Admission(
    cluster_queue="cq",
    pod_sets=(PodSetAssignment(name="main", flavors={"cpu": FlavorName("spot")}, usage={"cpu": 5000}, count=5),),
)
A_PART = msgspec.structs.replace(ADMISSION.pod_sets[0], count=3, usage={"cpu": 3000})
ADMIT = Admit(key=SliceKey("team/w2"), admission=ADMISSION, cluster="east")
WAIT = Wait(key=SliceKey("team/w2"), reason="Pending", message="4 cpu short", would_admit="4 cpu")
OLD = a_workload(admitted=1, dispatched=1, applied=1)
NEW = a_workload("w2", 5, replaces="w1")
GROWING = a_view(asking(1, 5), OLD, NEW)


def slice_of(view: Any, name: str) -> Slice:
    return next(slice for slice in view.slices if slice.name == name)


def test_quota_and_admission_come_in_one_write() -> None:
    commands = admission_writes.commands(GROWING, slice_of(GROWING, "w2"), ADMIT, now=NOW)
    assert shorts(commands) == [
        (
            "w2",
            "QuotaReserved=True QuotaReserved",
            "Admitted=True Admitted",
            "PodsReady=False WaitForStart",
            "admission",
            "clusterName",
        ),
        ("event Workload", "Admitted"),
        ("event Job", "Admitted"),
    ]
    [patch, *_] = commands
    assert isinstance(patch, Patch)
    read = Slice.from_manifest(merge_patch(NEW, patch.body))
    assert read.admitted
    assert (read.granted, read.cluster, read.admission) == ({"main": 5}, "east", ADMISSION)


def test_a_partial_admission_names_the_counts() -> None:
    part = msgspec.structs.replace(ADMIT, admission=msgspec.structs.replace(ADMISSION, pod_sets=(A_PART,)))
    [_, event, _] = admission_writes.commands(GROWING, slice_of(GROWING, "w2"), part, now=NOW)
    assert isinstance(event, Emit)
    assert event.note == "Admitted by ClusterQueue cq, runs on cluster east, main=3 of main=5"


def test_a_job_that_is_gone_gets_no_event() -> None:
    view = a_view(None, a_workload())
    decision = Admit(key=SliceKey("team/w1"), admission=ADMISSION, cluster="east")
    assert [what for what, *_ in shorts(admission_writes.commands(view, view.slices[0], decision, now=NOW))] == [
        "w1",
        "event Workload",
    ]


def test_a_waiting_slice_shows_why_once() -> None:
    commands = admission_writes.commands(GROWING, slice_of(GROWING, "w2"), WAIT, now=NOW)
    assert shorts(commands) == [
        ("w2", "QuotaReserved=False Pending"),
        ("warn Workload", "Pending"),
        ("warn Job", "Pending"),
    ]
    [remember, patch, *_] = commands
    assert remember == Remember(table=ManagerTable.WOULD_ADMIT, key="team/w2", value="4 cpu")
    assert isinstance(patch, Patch)
    shown = a_view(asking(1, 5), OLD, merge_patch(NEW, patch.body))
    assert admission_writes.commands(shown, slice_of(shown, "w2"), WAIT, now=LATER) == []


@pytest.mark.parametrize(("message", "events"), [("3 cpu short", 0), ("no place", 2), ("4 gpu short", 2)])
def test_the_same_reason_with_other_numbers_is_no_event(message: str, events: int) -> None:
    """Other jobs come and go: each changes what is lacking."""
    waiting = a_workload("w2", 5, replaces="w1", conditions=(condition("QuotaReserved", False, "Pending", message),))
    view = a_view(asking(1, 5), OLD, waiting)
    found = [what for what, *_ in shorts(admission_writes.commands(view, slice_of(view, "w2"), WAIT, now=NOW))]
    assert found == ["w2", "warn Workload", "warn Job"][: 1 + events]


def test_another_reason_keeps_the_time_since_when_it_waits() -> None:
    waiting = a_workload("w2", 5, replaces="w1", conditions=(condition("QuotaReserved", False, "Pending", "before"),))
    view = a_view(asking(1, 5), OLD, waiting)
    [_, patch, *_] = admission_writes.commands(view, slice_of(view, "w2"), WAIT, now=NOW)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    [shown] = patch.body["status"]["conditions"]
    assert (shown["message"], shown["lastTransitionTime"]) == ("4 cpu short", "2026-01-01T00:00:00Z")


def test_a_slice_admitted_elsewhere_first_clears_its_cluster() -> None:
    """A Workload's cluster may be taken away and given, and never changed."""
    was_west = a_workload()
    was_west["status"] = was_west.get("status", {}) | {"clusterName": "west"}
    view = a_view(a_job(), was_west)
    [forget] = admission_writes.commands(view, view.slices[0], ADMIT, now=NOW)
    assert isinstance(forget, Patch)
    assert forget.body == {"status": {"clusterName": None}}
    view = a_view(a_job(), merge_patch(was_west, forget.body))
    admitted = admission_writes.commands(view, view.slices[0], ADMIT, now=NOW)[0]
    assert isinstance(admitted, Patch)
    assert isinstance(admitted.body, dict)
    assert admitted.body["status"]["clusterName"] == "east"


EVICT = Evict(
    key=SliceKey("team/w1"), reason=EvictionReason.CLUSTER_QUEUE_STOPPED, message="The ClusterQueue is stopped"
)


def test_an_evicted_slice_keeps_its_quota_at_first() -> None:
    commands = admission_writes.commands(GROWING, slice_of(GROWING, "w1"), EVICT, now=NOW)
    assert shorts(commands) == [
        ("w1", "Evicted=True ClusterQueueStopped", "slicebus.dev/Dispatched=False Suspending"),
        ("event Workload", "EvictedDueToClusterQueueStopped"),
        ("event Job", "EvictedDueToClusterQueueStopped"),
    ]
    [patch, *_] = commands
    assert isinstance(patch, Patch)
    read = Slice.from_manifest(merge_patch(OLD, patch.body))
    assert (read.evicting, read.admitted, read.granted) == (True, False, {})
    again = a_view(asking(1, 5), merge_patch(OLD, patch.body))
    assert admission_writes.commands(again, again.slices[0], EVICT, now=LATER) == []


def test_a_preemption_shows_its_kueue_reason_too() -> None:
    evict = Evict(key=EVICT.key, reason=EvictionReason.PREEMPTED, message="for w9", preemption="InCohortReclamation")
    [(_, *findings), *_] = shorts(admission_writes.commands(GROWING, slice_of(GROWING, "w1"), evict, now=NOW))
    assert findings[:2] == ["Evicted=True Preempted", "Preempted=True InCohortReclamation"]
