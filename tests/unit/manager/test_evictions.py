"""An evicted slice keeps its quota until the worker has no pod left; then the worker's request is forgotten."""

from typing import Any

import pytest

from slicebus.decisions.commands import Command, Emit, Patch, Publish
from slicebus.manager.decide.admission import admission_writes
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.messages import message_handlers
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.annotations import SizeRequest, TakenBack
from slicebus.manager.state.outbox import Dispatch, applied_version
from slicebus.proto.messages import Applied, ClusterName, ScaleRequest, Suspend
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.cycle import Admit, Wait
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import spec_hash
from slicebus.slices.api.kueue import PENDING
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.workload import Admission, FlavorName, PodSetAssignment, Slice, SliceKey
from unit.manager.objects import (
    EAST,
    NOW,
    REF,
    WEST,
    a_job,
    a_view,
    a_workload,
    an_envelope,
    asking,
    condition,
    desired_of,
    requested,
    short,
    shorts,
    uid_of,
)

Manifest = dict[str, Any]

STOPPED = condition("Evicted", True, "ClusterQueueStopped", "The ClusterQueue is stopped")
PREEMPTED = (condition("Evicted", True, "Preempted", "for another"), condition("Preempted", True, "InClusterQueue"))
SUSPENDED = spec_hash(EAST, "w1", {}, None)
FORGOTTEN = requested({"main": 5}).cleared()


def evicted(
    count: int = 5, *, version: int = 0, place: str = "", conditions: tuple[Manifest, ...] = (STOPPED,), **how: Any
) -> Manifest:
    """A slice that has lost its quota or is about to; `version` is that of its worker's order to suspend it."""
    workload = a_workload(count=count, admitted=5, conditions=conditions, **how)
    if version:
        record = Dispatch(version, SUSPENDED, cluster="east", place=place, suspended=True)
        workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
    return workload


def without_quota(*conditions: Manifest, **how: Any) -> Manifest:
    """A slice whose eviction has ended."""
    workload = evicted(1, conditions=conditions or (STOPPED,), **({"version": 4, "applied": 4} | how))
    del workload["status"]["admission"]
    workload["status"]["conditions"] = [
        entry for entry in workload["status"]["conditions"] if entry["type"] not in ("QuotaReserved", "Admitted")
    ]
    return workload


def forgetting(parallelism: int = 1, *, suspended: bool = True) -> Manifest:
    job = a_job(parallelism, annotations={api_names.REQUESTED_ANNOTATION: FORGOTTEN.to_annotation()})
    job["spec"]["suspend"] = suspended
    if suspended:
        job["metadata"]["annotations"][api_names.SUSPENDED_ANNOTATION] = "true"
    return job


GIVEN_BACK = (
    "QuotaReserved=False Pending",
    "Admitted=False NoReservation",
    "Requeued=False ClusterQueueStopped",
    "slicebus.dev/Dispatched=True Suspended",
    "slicebus.dev/EvictedBefore=True ClusterQueueStopped",
    "admission",
)
SUSPENDS = [("w1", "version 4 is held"), ("suspend to east", 4)]
CASES: dict[str, tuple[list[Manifest], int, bool, list[tuple[Any, ...]]]] = {
    "its worker has it": ([evicted(dispatched=3, applied=3)], 3, True, SUSPENDS),
    "its worker gets the order": ([evicted(version=4, applied=3)], 4, True, []),
    "another process has published it": ([evicted(version=4, applied=3)], 0, True, SUSPENDS[1:]),
    "its worker has lost it": (
        [evicted(dispatched=4, hash="lost", applied=4)],
        4,
        True,
        [("w1", "version 5 is held"), ("suspend to east", 5)],
    ),
    "its worker is to delete it": (
        [evicted(dispatched=4, hash=api_names.ABSENT, applied=3)],
        0,
        True,
        [("delete to east", 4)],
    ),
    "its size is not the spec's yet": ([evicted(version=4, applied=4)], 4, True, [("w1", "counts", {"main": 1})]),
    "no pod is left": ([evicted(1, version=4, applied=4)], 4, True, [("w1", *GIVEN_BACK)]),
    "it was preempted": (
        [evicted(1, conditions=PREEMPTED, version=4, applied=4)],
        4,
        True,
        [
            (
                "w1",
                *(
                    text.replace("False Cl", "True Cl").replace("ClusterQueueStopped", "Preempted")
                    for text in GIVEN_BACK
                ),
            )
        ],
    ),
    "its pods were ready": (
        [evicted(1, conditions=(STOPPED, condition("PodsReady")), version=4, applied=4)],
        4,
        True,
        [("w1", *GIVEN_BACK[:2], "PodsReady=False WaitForStart", *GIVEN_BACK[2:])],
    ),
    "nothing was ever dispatched": ([evicted(1)], 0, True, [("w1", *GIVEN_BACK)]),
    "its cluster has left the fleet": ([evicted(1, dispatched=3, applied=2)], 3, False, [("w1", *GIVEN_BACK)]),
    "it was growing": (
        [evicted(version=4, applied=3), a_workload("w2", 7, replaces="w1")],
        4,
        True,
        [("w2", "Finished=True OutOfSync")],
    ),
    "it has just grown": (
        [a_workload(admitted=1, dispatched=3, applied=3), evicted(name="w2", replaces="w1")],
        3,
        True,
        [
            ("w1", "Finished=True WorkloadSliceReplaced"),
            ("w2", "version 4 is held"),
            ("suspend to east", 4),
            ("event Workload", "WorkloadSliceReplaced"),
        ],
    ),
    "it has given its quota back": ([without_quota()], 4, True, []),
}


@pytest.mark.parametrize(("workloads", "published", "in_fleet", "expected"), CASES.values(), ids=CASES.keys())
def test_what_follows(
    workloads: list[Manifest], published: int, in_fleet: bool, expected: list[tuple[Any, ...]]
) -> None:
    view = a_view(forgetting(), *workloads, published=published, in_fleet=in_fleet)
    assert sorted(shorts(reconcile(view, NOW))) == sorted(expected)


def test_what_it_had_shrunk_by_is_given_up_before_it_has_its_size_again() -> None:
    """Its quota is for others since then, and a slice is charged for what is admitted of its counts."""
    job, workload, charged = forgetting(4), evicted(3, version=4, applied=4), []
    while "admission" in workload["status"]:
        charged.append(sum(Slice.from_manifest(workload).usage.values()))
        [command] = reconcile(a_view(job, workload, published=4), NOW)
        workload = carried_out(workload, [command])
    assert charged == [3000, 3000, 3000]
    assert Slice.from_manifest(workload).counts == {"main": 4}


def test_the_request_of_a_worker_that_left_the_fleet_is_forgotten() -> None:
    asked = asking(1, 5)
    asked["spec"]["suspend"] = True
    asked["metadata"]["annotations"][api_names.SUSPENDED_ANNOTATION] = "true"
    [patch] = reconcile(a_view(asked, evicted(dispatched=3, applied=3), in_fleet=False), NOW)
    assert isinstance(patch, Patch)
    job = merge_patch(asked, patch.body)
    assert desired_of(job).counts == {"main": 1}


def test_so_is_what_was_taken_back_from_it() -> None:
    """It was told to shrink, and its cluster is lost before it answers: it comes back at its spec's size."""
    taken = TakenBack(counts={"main": 0}, request=SizeRequest.nothing().key, at=NOW, message="for another", note="n")
    told = SizeRequest(baseline={"main": 3}, taken_back=taken).to_annotation()
    lost = a_job(3, annotations={api_names.REQUESTED_ANNOTATION: told, api_names.SUSPENDED_ANNOTATION: "true"})
    lost["spec"]["suspend"] = True
    assert desired_of(lost).counts == {"main": 0}
    [patch] = reconcile(a_view(lost, evicted(dispatched=3, applied=3), in_fleet=False), NOW)
    assert isinstance(patch, Patch)
    assert desired_of(merge_patch(lost, patch.body)).counts == {"main": 3}


def test_a_deactivated_size_changes_while_nothing_runs() -> None:
    assert shorts(reconcile(a_view(forgetting(3), without_quota()), NOW)) == [("w1", "counts", {"main": 3})]


def test_the_managers_job_is_suspended_and_resumed_before_its_copy() -> None:
    first, *others = reconcile(a_view(forgetting(suspended=False), evicted(dispatched=3, applied=3)), NOW)
    assert isinstance(first, Patch)
    assert (first.target["kind"], short(first)) == ("Job", ("train", "suspended"))
    assert shorts(others) == [*SUSPENDS, ("event Job", "Suspended")]
    first, *others = reconcile(a_view(forgetting(), back(without_quota())), NOW)
    assert isinstance(first, Patch)
    assert (first.target["kind"], short(first)) == ("Job", ("train", "resumed"))
    assert shorts(others) == RESUMED


def test_an_event_says_how_to_keep_it_suspended() -> None:
    """Nobody learns that a user sets `spec.suspend` while it is set."""
    *_, told = reconcile(a_view(forgetting(suspended=False), evicted(dispatched=3, applied=3)), NOW)
    assert isinstance(told, Emit)
    assert "spec.suspend" in told.note
    assert f"remove its annotation {api_names.SUSPENDED_ANNOTATION}" in told.note
    again = reconcile(a_view(forgetting(), evicted(dispatched=3, applied=3)), NOW)
    assert not [command for command in again if isinstance(command, Emit)]


def test_the_order_names_the_slice_and_the_reason() -> None:
    [_, _, publish] = reconcile(a_view(forgetting(), evicted(dispatched=3, applied=3)), NOW)
    assert isinstance(publish, Publish)
    assert publish.message == Suspend(
        job=REF,
        spec_version=4,
        workload="w1",
        reason="EvictedDueToClusterQueueStopped",
        message="The ClusterQueue is stopped",
    )


# --- of a kind that cannot be suspended -----------------------------------------------------------------------------

WITHDRAWS = [("w1", "version 4 is absent"), ("delete to east", 4)]
WHOLE: dict[str, tuple[Manifest, int, list[tuple[Any, ...]]]] = {
    "its worker has it": (evicted(dispatched=3, applied=3), 3, WITHDRAWS),
    "another process has published it": (
        evicted(dispatched=4, hash=api_names.ABSENT, applied=3),
        0,
        [("delete to east", 4)],
    ),
    "its worker gets the order": (evicted(dispatched=4, hash=api_names.ABSENT, applied=3), 4, []),
    "no pod is left": (evicted(1, dispatched=4, hash=api_names.ABSENT, applied=4), 4, [("w1", *GIVEN_BACK)]),
    "its size is not the spec's yet": (
        evicted(dispatched=4, hash=api_names.ABSENT, applied=4),
        4,
        [("w1", "counts", {"main": 1})],
    ),
}


@pytest.fixture
def not_suspendable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KINDS["Job"], "suspend_path", None)


@pytest.mark.parametrize(("workload", "published", "expected"), WHOLE.values(), ids=WHOLE.keys())
@pytest.mark.usefixtures("not_suspendable")
def test_a_job_that_cannot_be_suspended_leaves_its_worker(
    workload: Manifest, published: int, expected: list[tuple[Any, ...]]
) -> None:
    assert shorts(reconcile(a_view(forgetting(suspended=False), workload, published=published), NOW)) == expected


@pytest.mark.usefixtures("not_suspendable")
def test_it_is_made_anew_when_there_is_quota_again() -> None:
    workload = without_quota(dispatched=4, hash=api_names.ABSENT, version=0, applied=4)
    commands = reconcile(a_view(forgetting(suspended=False), back(workload)), NOW)
    assert shorts(commands) == [("w1", "version 5 is held"), ("workload-spec to east", 5)]


@pytest.mark.usefixtures("not_suspendable")
def test_the_grown_size_is_forgotten_with_the_report_of_its_delete() -> None:
    view = a_view(asking(1, 5), evicted(dispatched=4, hash=api_names.ABSENT, applied=3))
    [patch] = message_handlers.applied(view, report(4, workload="", deleted=True), an_envelope(epoch=2, sequence=7))
    assert isinstance(patch, Patch)
    assert applied_version(patch.body) == 4
    assert desired_of(merge_patch(asking(1, 5), patch.body)).counts == {"main": 1}


# --- the report, and what comes after it ----------------------------------------------------------------------------


def forgets(commands: Any) -> list[Patch]:
    return [command for command in commands if SizeRequest.from_manifest(command.body) is not None]


def report(version: int, **how: Any) -> Applied:
    return Applied(job=REF, **({"workload": "w1", "spec_version": version} | how))


@pytest.mark.parametrize("how", [{}, {"workload": "", "deleted": True}], ids=["suspended", "it never had it"])
def test_the_grown_size_is_forgotten_with_the_report(how: dict[str, Any]) -> None:
    view = a_view(asking(1, 5), evicted(version=4, applied=3))
    [patch] = message_handlers.applied(view, report(4, **how), an_envelope(epoch=2, sequence=7))
    assert isinstance(patch, Patch)
    assert applied_version(patch.body) == 4
    job = merge_patch(asking(1, 5), patch.body)
    assert desired_of(job).counts == {"main": 1}
    reported = a_view(job, evicted(version=4, applied=4))
    assert message_handlers.applied(reported, report(4), an_envelope(epoch=2, sequence=8)) == []


def test_a_copy_that_its_worker_never_had_keeps_no_pods() -> None:
    """Its job counts as withdrawn, so that edited pods are those of its next copy. A suspended one keeps its own."""
    waits = without_quota()
    suspending = carried_out(waits, [])
    suspending["metadata"]["annotations"][api_names.APPLIED_ANNOTATION] = "3"
    for never_had, is_withdrawn in ((True, True), (False, False)):
        how = {"workload": "", "deleted": True} if never_had else {}
        commands = message_handlers.applied(a_view(forgetting(), suspending), report(4, **how), an_envelope())
        after = a_view(forgetting(), carried_out(suspending, commands))
        assert (after.is_withdrawn, after.is_without_pods, after.cluster) == (is_withdrawn, True, EAST)
    late = message_handlers.applied(
        a_view(forgetting(), suspending), report(3, workload="", deleted=True), an_envelope()
    )
    assert late == []


def test_a_request_that_comes_after_the_report_is_forgotten_where_an_earlier_one_was() -> None:
    earlier = SizeRequest.none_before((2, 3), speaker=uid_of(EAST))
    job = a_job(annotations={api_names.REQUESTED_ANNOTATION: earlier.to_annotation()})
    commands = message_handlers.applied(
        a_view(job, evicted(version=4, applied=3)), report(4), an_envelope(epoch=2, sequence=7)
    )
    [forgotten] = forgets(commands)
    view = a_view(merge_patch(job, forgotten.body), a_workload(admitted=1, dispatched=5, applied=5))
    assert message_handlers.scale_request(view, asks(), an_envelope(epoch=2, sequence=6)) == []


@pytest.mark.parametrize(
    ("workload", "version"),
    [(evicted(version=4, applied=3), 3), (a_workload(admitted=5, dispatched=4, applied=3), 4)],
    ids=["an older report", "no eviction"],
)
def test_other_reports_forget_nothing(workload: Manifest, version: int) -> None:
    commands = message_handlers.applied(a_view(asking(1, 5), workload), report(version), an_envelope())
    assert not forgets(commands)


def asks(generation: int = 3) -> ScaleRequest:
    return ScaleRequest(
        job=REF, workload="w1", worker_uid="w-1", worker_generation=generation, granted={"main": 1}, wanted={"main": 5}
    )


STAMPS: dict[str, tuple[int, int, bool]] = {
    "before the report": (2, 6, False),
    "by the agent before": (1, 99, False),
    "after the report": (2, 8, True),
    "by the next agent": (3, 1, True),
}


@pytest.mark.parametrize(("epoch", "sequence", "counts"), STAMPS.values(), ids=STAMPS.keys())
def test_a_request_from_before_the_eviction_does_not_count(epoch: int, sequence: int, counts: bool) -> None:
    floor = SizeRequest.none_before((2, 7), speaker=uid_of(EAST))
    job = a_job(annotations={api_names.REQUESTED_ANNOTATION: floor.to_annotation()})
    view = a_view(job, a_workload(admitted=1, dispatched=5, applied=5))
    commands = message_handlers.scale_request(view, asks(), an_envelope(epoch=epoch, sequence=sequence))
    assert bool(commands) is counts


def test_a_request_during_the_eviction_does_not_count() -> None:
    for workload in (evicted(version=4, applied=3), without_quota()):
        assert message_handlers.scale_request(a_view(a_job(), workload), asks(), an_envelope(sequence=9)) == []


# --- coming back ----------------------------------------------------------------------------------------------------


def given(flavor: str, count: int = 1) -> Admission:
    usage = {"cpu": 1000 * count}
    assignment = PodSetAssignment(name="main", flavors={"cpu": FlavorName(flavor)}, usage=usage, count=count)
    return Admission(cluster_queue="cq", pod_sets=(assignment,))


def carried_out(manifest: Manifest, commands: list[Command]) -> Manifest:
    for command in commands:
        if isinstance(command, Patch) and command.target["kind"] == "Workload":
            manifest = merge_patch(manifest, command.body)
    return manifest


def back(workload: Manifest, *, flavor: str = "spot", cluster: ClusterName = EAST) -> Manifest:
    """An evicted slice with quota again. Admitted elsewhere it first forgets where it was."""
    admit = Admit(key=SliceKey("team/w1"), admission=given(flavor), cluster=cluster)
    while not workload["status"].get("admission"):
        view = a_view(forgetting(), workload)
        workload = carried_out(workload, admission_writes.commands(view, view.slices[0], admit, now=NOW))
    return workload


def test_the_eviction_is_over_when_there_is_quota_again() -> None:
    workload = without_quota(*PREEMPTED)
    shown = {entry["type"]: (entry["status"], entry["reason"]) for entry in back(workload)["status"]["conditions"]}
    assert (shown["Evicted"], shown["Preempted"]) == (("False", "QuotaReserved"), ("False", "QuotaReserved"))
    assert Slice.from_manifest(back(workload)).granted == {"main": 1}


REQUEUED: dict[str, tuple[str, str, str]] = {
    "the ClusterQueue runs again": ("ClusterQueueStopped", PENDING, "True ClusterQueueRestarted"),
    "the LocalQueue runs again": ("LocalQueueStopped", PENDING, "True LocalQueueRestarted"),
    "it is active again": ("Deactivated", PENDING, "True Reactivated"),
    "the queue is still stopped": ("ClusterQueueStopped", "Inadmissible", "False ClusterQueueStopped"),
}


@pytest.mark.parametrize(("stopped", "waits", "expected"), REQUEUED.values(), ids=REQUEUED.keys())
def test_it_is_requeued_when_nothing_stops_it(stopped: str, waits: str, expected: str) -> None:
    workload = without_quota(STOPPED, condition("Requeued", False, stopped))
    view = a_view(a_job(), workload)
    wait = Wait(key=SliceKey("team/w1"), reason=waits, message="it waits")
    shown = carried_out(workload, admission_writes.commands(view, view.slices[0], wait, now=NOW))
    [requeued] = [entry for entry in shown["status"]["conditions"] if entry["type"] == "Requeued"]
    assert f"{requeued['status']} {requeued['reason']}" == expected


SPOT = dispatch._flavors_hash(Slice.from_manifest(a_workload(admitted=1)))
RESUMED = [("w1", "version 5 is held"), ("workload-spec to east", 5)]
DELETED_FIRST = [("w1", "version 5 is absent"), ("delete to east", 5)]
PLACES: dict[str, tuple[Manifest, list[tuple[Any, ...]]]] = {
    "where it was": (back(without_quota(place=SPOT)), RESUMED),
    "nobody knows which flavors it had": (back(without_quota()), RESUMED),
    "with other flavors": (back(without_quota(place=SPOT), flavor="other"), DELETED_FIRST),
    "on another cluster": (back(without_quota(place=SPOT), cluster=WEST), DELETED_FIRST),
}


@pytest.mark.parametrize(("workload", "expected"), PLACES.values(), ids=PLACES.keys())
def test_its_copy_is_resumed_where_it_fits_and_deleted_where_not(
    workload: Manifest, expected: list[tuple[Any, ...]]
) -> None:
    assert shorts(reconcile(a_view(forgetting(suspended=False), workload), NOW)) == expected


def test_it_goes_elsewhere_when_its_copy_is_gone() -> None:
    workload = back(without_quota(place=SPOT), cluster=WEST)
    leaving = carried_out(workload, reconcile(a_view(forgetting(suspended=False), workload), NOW))
    assert a_view(forgetting(suspended=False), leaving).cluster == EAST
    assert reconcile(a_view(forgetting(suspended=False), leaving, published=5), NOW) == []
    leaving["metadata"]["annotations"][api_names.APPLIED_ANNOTATION] = "5"
    assert a_view(forgetting(suspended=False), leaving).cluster == WEST
    moved = reconcile(a_view(forgetting(suspended=False), leaving, published=5), NOW)
    assert shorts(moved) == [("w1", "version 6 is held"), ("workload-spec to west", 6)]
    there = a_view(forgetting(suspended=False), carried_out(leaving, moved))
    # What the cluster that it has left reports now is late, and no dead letter.
    assert message_handlers.applied(there, report(4), an_envelope()) == []
