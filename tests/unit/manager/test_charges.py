"""What pods request where they run, compared with what their slice is charged for."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.manager.decide.admission import builtin
from slicebus.manager.decide.job import charges
from slicebus.manager.state.views import JobView
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import JobPhase, PodSetStatus, PodSetUse, Status
from slicebus.slices.api import api_names
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.observed import Observed, ObservedPods
from slicebus.slices.workload.workload import FlavorName, Slice
from unit.manager.objects import EAST, NOW, REF, WEST, a_job, a_view, a_workload, an_envelope, asking, shorts
from unit.slices.builders import a_queue

Manifest = dict[str, Any]
SPOT = FlavorName("spot")
QUEUES: dict[str, ClusterQueue] = {"cq": a_queue(quotas={"spot": {"cpu": "20", "memory": "20Gi"}})}


def reported(running: int, gated: int = 0, pod_set: str = "main", version: int = 1, **requests: str) -> Status:
    """A status with so many pods, which request this together."""
    pods = {pod_set: PodSetStatus(ready=0, gated=gated, total=running + gated, requests=requests)}
    return Status(job=REF, workload="w1", spec_version=version, phase=JobPhase.RUNNING, pods=pods)


def a_running(admitted: int = 2, *, observed: Observed | None = None, **how: Any) -> JobView:
    workload = a_workload("w1", admitted, admitted=admitted, dispatched=1, applied=1, **how)
    if observed is not None:
        workload["metadata"]["annotations"][api_names.OBSERVED_ANNOTATION] = observed.to_annotation()
    return a_view(a_job(admitted), workload)


def taken(view: JobView, report: Status, **envelope: Any) -> list[Command]:
    return charges.take(view, report, an_envelope(**envelope), queues=QUEUES, now=NOW)


def after(view: JobView, commands: list[Command]) -> tuple[Slice, dict[str, Manifest]]:
    """The slice, and its conditions, after what was written."""
    workload = view.workloads["w1"]
    annotations, status = dict(workload["metadata"]["annotations"]), dict(workload["status"])
    for command in commands:
        if isinstance(command, Patch):
            assert isinstance(command.body, dict)
            annotations |= command.body.get("metadata", {}).get("annotations", {})
            status |= command.body.get("status", {})
    written = {name: value for name, value in annotations.items() if value is not None}
    changed = workload | {"metadata": workload["metadata"] | {"annotations": written}, "status": status}
    return Slice.from_manifest(changed), {entry["type"]: entry for entry in status["conditions"]}


CASES: dict[str, tuple[Status, dict[str, int], str]] = {
    "as admitted": (reported(2, cpu="2"), {"cpu": 2000}, ""),
    "less": (reported(2, cpu="1"), {"cpu": 2000}, ""),
    "not all run yet": (reported(1, gated=1, cpu="1"), {"cpu": 2000}, ""),
    "none runs": (reported(0, gated=2), {"cpu": 2000}, ""),
    "a sidecar in each": (reported(2, cpu="3"), {"cpu": 3000}, "PodsRequestMore"),
    "a sidecar, and half of them run": (reported(1, gated=1, cpu="1500m"), {"cpu": 3000}, "PodsRequestMore"),
    "a default of what the template does not request": (
        reported(2, cpu="2", memory="2Gi"),
        {"cpu": 2000, "memory": 2**31},
        "PodsRequestMore",
    ),
    "what the quota does not cover": (reported(2, cpu="2", storage="2"), {"cpu": 2000}, ""),
    "one that was resized": (reported(2, cpu="5"), {"cpu": 5000}, "PodsRequestMore"),
    "more than were let go": (reported(5, cpu="5"), {"cpu": 5000}, "PodsBeyondGrant"),
    "more, and larger": (reported(5, cpu="10", memory="5Gi"), {"cpu": 10000, "memory": 5 * 2**30}, "PodsBeyondGrant"),
    "of no pod set": (reported(3, pod_set="other", cpu="3"), {"cpu": 5000}, "PodsBeyondGrant"),
}


@pytest.mark.parametrize(("report", "charged", "reason"), CASES.values(), ids=CASES.keys())
def test_the_larger_is_charged_and_said(report: Status, charged: dict[str, int], reason: str) -> None:
    view = a_running()
    commands = taken(view, report)
    slice, conditions = after(view, commands)
    assert slice.usage == {(SPOT, resource): value for resource, value in charged.items()}
    assert slice.admitted_usage == {(SPOT, "cpu"): 2000}
    if not reason:
        assert commands == []
        return
    condition = conditions["slicebus.dev/ChargedMore"]
    assert (condition["status"], condition["reason"]) == ("True", reason)
    [event] = [command for command in commands if isinstance(command, Emit)]
    assert (event.reason, event.note, event.warning) == ("ChargedMore", condition["message"], True)


def test_it_is_said_in_words() -> None:
    _, conditions = after(a_running(), taken(a_running(), reported(5, cpu="10", memory="5Gi")))
    assert conditions["slicebus.dev/ChargedMore"]["message"] == (
        "On cluster east 5 pods of pod set main run, and 2 are granted; a pod of pod set main requests 2 cpu and 1Gi "
        "memory. Charged: 10 cpu in flavor spot in place of 2, 5Gi memory in flavor spot in place of 0"
    )


def said(view: JobView, report: Status) -> JobView:
    """The view once a report was taken in."""
    workload = view.workloads["w1"]
    slice, conditions = after(view, taken(view, report))
    annotations = dict(workload["metadata"]["annotations"])
    annotations.pop(api_names.OBSERVED_ANNOTATION, None)
    if slice.observed is not None:
        annotations[api_names.OBSERVED_ANNOTATION] = slice.observed.to_annotation()
    status = workload["status"] | {"conditions": list(conditions.values())}
    changed = workload | {"metadata": workload["metadata"] | {"annotations": annotations}, "status": status}
    assert view.job is not None
    return a_view(view.job, changed)


def test_it_is_written_once() -> None:
    view = said(a_running(), reported(2, cpu="3"))
    assert taken(view, reported(2, cpu="3")) == []
    assert taken(view, reported(1, gated=1, cpu="1500m")) == []
    assert taken(view, reported(0, gated=2)) == []


def test_it_ends_with_its_cause() -> None:
    view = said(a_running(), reported(5, cpu="5"))
    slice, conditions = after(view, taken(view, reported(2, cpu="2")))
    assert (slice.observed, slice.usage) == (None, {(SPOT, "cpu"): 2000})
    assert conditions["slicebus.dev/ChargedMore"]["status"] == "False"


def test_pods_that_request_nothing_any_more_are_charged_where_the_slice_before_them_was() -> None:
    """A default that its cluster has no more stays on the pods, and they stay where they are."""
    queues = {"cq": a_queue(quotas={"ondemand": {"cpu": "20"}, "spot": {"cpu": "20"}})}
    silent = a_workload("w2", 2, admitted=2, dispatched=1, applied=1, replaces="w1")
    silent["status"]["admission"]["podSetAssignments"][0] |= {"flavors": {}, "resourceUsage": {}}
    view = a_view(a_job(2), a_workload("w1", 1, admitted=1, dispatched=1, applied=1), silent)
    [patch, *_] = charges.take(view, reported(2, cpu="500m"), an_envelope(), queues=queues, now=NOW)
    assert isinstance(patch, Patch)
    known = msgspec.json.decode(patch.body["metadata"]["annotations"][api_names.OBSERVED_ANNOTATION])  # type: ignore[call-overload]
    assert known["pod_sets"] == {"main": {"requests": {"cpu": 250}, "flavors": {"cpu": SPOT}}}


def test_what_is_known_of_the_pods_is_charged_for_the_next_slice_before_it_is_admitted() -> None:
    view = said(a_running(), reported(5, cpu="10", memory="10Gi"))
    workload = view.workloads["w1"]
    grown = a_view(asking(2, 4), workload)
    [create, *_] = builtin.reconcile(grown, NOW)
    annotations = create.manifest["metadata"]["annotations"]  # type: ignore[union-attr]
    next_slice = Slice.from_manifest(create.manifest | {"status": {}})  # type: ignore[union-attr]
    assert next_slice.pod_sets[0].charged == {"cpu": 2000, "memory": 2**31}
    assert not next_slice.pod_sets[0].is_asked_for("memory")
    assert msgspec.json.decode(annotations[api_names.OBSERVED_ANNOTATION])["pod_sets"] == {
        "main": {"requests": {"cpu": 2000, "memory": 2**31}}
    }


def test_a_slice_that_was_admitted_with_it_says_nothing_and_keeps_it_for_the_next() -> None:
    known = Observed(EAST, {"main": ObservedPods(requests={"cpu": 1500})})
    workload = a_workload("w1", 2, admitted=2, dispatched=1, applied=1)
    workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = {"cpu": "3"}
    workload["metadata"]["annotations"][api_names.OBSERVED_ANNOTATION] = known.to_annotation()
    assert taken(a_view(a_job(2), workload), reported(2, cpu="3")) == []


IGNORED: dict[str, tuple[JobView, Status, dict[str, Any]]] = {
    "another cluster's": (a_running(), reported(2, cpu="9"), {"cluster": WEST, "user": "west"}),
    "of a job that runs nowhere": (a_view(a_job(), a_workload()), reported(2, cpu="9"), {}),
    "of no job": (a_view(None), reported(2, cpu="9"), {}),
    "published before the last request": (
        a_view(
            asking(2, 2, speaker="uid-of-east", epoch=1, sequence=7),
            a_workload("w1", 2, admitted=2, dispatched=1, applied=1),
        ),
        reported(5, cpu="5"),
        {"sequence": 6},
    ),
}


@pytest.mark.parametrize(("view", "report", "envelope"), IGNORED.values(), ids=IGNORED.keys())
def test_a_report_that_is_late_or_another_s_changes_nothing(
    view: JobView, report: Status, envelope: dict[str, Any]
) -> None:
    assert taken(view, report, **envelope) == []


def test_while_it_is_evicted_its_pods_count_too() -> None:
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "lastTransitionTime": NOW}
    view = a_running(conditions=(evicted,))
    assert view.holder is None
    assert ("warn Job", "ChargedMore") in shorts(taken(view, reported(2, cpu="3")))


def test_what_is_no_quantity_is_a_dead_letter() -> None:
    with pytest.raises(ProtocolError, match="not a quantity: 'lots'") as raised:
        taken(a_running(), reported(2, cpu="lots"))
    assert raised.value.reason is DeadReason.REFUSED


@pytest.mark.parametrize(
    ("use", "differs"),
    [
        (PodSetUse(2, {"cpu": "2"}), False),
        (PodSetUse(1, {"cpu": "1"}), False),
        (PodSetUse(2, {"cpu": "3"}), True),
        (PodSetUse(5, {"cpu": "5"}), True),
        (PodSetUse(2, {"cpu": "lots"}), False),
    ],
    ids=["as admitted", "one of two", "a sidecar", "a lost gate", "unreadable"],
)
def test_an_inventory_that_shows_more_asks_for_the_status(use: PodSetUse, differs: bool) -> None:
    assert charges.differs(a_running(), {"main": use}, queues=QUEUES) is differs


def test_an_inventory_that_shows_what_is_recorded_asks_for_nothing() -> None:
    view = said(a_running(), reported(2, cpu="3"))
    assert not charges.differs(view, {"main": PodSetUse(2, {"cpu": "3"})}, queues=QUEUES)
    assert charges.differs(view, {"main": PodSetUse(2, {"cpu": "2"})}, queues=QUEUES)


RESOURCES = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.integers(-5, 40).map(str))


@given(
    admitted=st.integers(0, 5),
    reports=st.lists(st.tuples(st.sampled_from(["main", "", "x"]), st.integers(0, 9), RESOURCES), max_size=4),
)
def test_the_charge_is_never_less_than_what_was_admitted_nor_than_what_runs(
    admitted: int, reports: list[tuple[str, int, dict[str, str]]]
) -> None:
    view = a_running(admitted)
    for name, running, requests in reports:
        pods = {name: PodSetStatus(total=running, requests=requests)}
        report = Status(job=REF, workload="w1", spec_version=1, phase=JobPhase.RUNNING, pods=pods)
        view = said(view, report)
        slice = view.slices[0]
        assert all(value >= slice.admitted_usage.get(key, 0) for key, value in slice.usage.items())
        if running and "cpu" in requests:
            assert slice.usage.get((SPOT, "cpu"), 0) >= int(requests["cpu"]) * 1000
        assert taken(view, report) == []
