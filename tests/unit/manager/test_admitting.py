"""An admission is written in one with the order that follows from it."""

from typing import Any

import pytest

from slicebus.decisions.commands import Command, Patch
from slicebus.manager.decide import admitting, builtin, verdicts
from slicebus.manager.state.outbox import Dispatch
from slicebus.manager.state.views import JobView
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices import own_api
from slicebus.slices.admission import Admit, Decision, Evict, Wait
from slicebus.slices.kueue import EvictionReason
from slicebus.slices.workload import Admission, FlavorName, PodSetAssignment, SliceKey
from unit.manager.objects import (
    NOW,
    a_job,
    a_view,
    a_workload,
    asking,
    condition,
    shorts,
    vanished,
    withdrawn,
    without_notes,
)

Manifest = dict[str, Any]


def admits(name: str, count: int, *, cluster: str = "east") -> Admit:
    usage = PodSetAssignment(name="main", flavors={"cpu": FlavorName("spot")}, usage={"cpu": count * 1000}, count=count)
    return Admit(key=SliceKey(f"team/{name}"), admission=Admission("cq", (usage,)), cluster=cluster)


def written(view: JobView, decision: Decision) -> list[Command]:
    slice = next(slice for slice in view.slices if slice.key == decision.key)
    return admitting.commands(view, slice, decision, now=NOW)


def admitted(view: JobView, decision: Admit) -> JobView:
    """The view after the write."""
    patch, *_ = written(view, decision)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    return view.with_workload(merge_patch(patch.target, patch.body))


def order_of(view: JobView, name: str) -> Dispatch | None:
    return Dispatch.from_manifest(view.workloads[name])


FIRST = a_view(a_job(), a_workload())
GROWS = a_view(asking(1, 5), a_workload(admitted=1, dispatched=3, applied=3), a_workload("w2", 5, replaces="w1"))


def test_the_first_order_comes_with_the_admission() -> None:
    after = admitted(FIRST, admits("w1", 1))
    order = order_of(after, "w1")
    assert order is not None
    assert (order.version, order.cluster, after.state) == (1, "east", ("hold", "written"))
    assert shorts(builtin.decide(after, NOW)) == [("workload-spec to east", 1)], "only that is left to do"


def test_the_order_of_a_resize_comes_with_its_admission() -> None:
    after = admitted(GROWS, admits("w2", 5))
    assert after.outbox is not None
    assert (after.outbox.record.version, after.outbox.record.answers.worker_generation) == (4, 2)
    assert shorts(builtin.decide(after, NOW))[:2] == [
        ("w1", "Finished=True WorkloadSliceReplaced"),
        ("workload-spec to east", 4),
    ]


def test_it_is_the_order_that_a_reconcile_would_have_written() -> None:
    [patch, *_] = verdicts.commands(FIRST, FIRST.slices[0], admits("w1", 1), now=NOW)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    plain = FIRST.with_workload(merge_patch(patch.target, patch.body))
    [write, *_] = without_notes(builtin.decide(plain, NOW))
    assert Dispatch.from_manifest(write.body) == order_of(admitted(FIRST, admits("w1", 1)), "w1")


def suspended_on(cluster: str) -> Manifest:
    workload = a_workload(conditions=(condition("Evicted", True, "Preempted"),), applied=4)
    record = Dispatch(4, "hash", cluster=cluster, suspended=True)
    workload["metadata"]["annotations"][own_api.DISPATCHED_ANNOTATION] = record.to_annotation()
    return workload


def ends_unknown() -> Manifest:
    workload = withdrawn(dispatched=4, applied=4)
    record = Dispatch(4, own_api.ABSENT, cluster="east", unknown_end=True)
    workload["metadata"]["annotations"][own_api.DISPATCHED_ANNOTATION] = record.to_annotation()
    del workload["status"]["admission"]
    return workload


WITHOUT = {
    "its job is gone": a_view(None, a_workload()),
    "its job is being deleted": a_view(a_job(deleting=True), a_workload()),
    "its job is not managed": a_view(a_job(managed=False), a_workload(held=False)),
    "its job has ended": a_view(a_job(over="Complete"), a_workload()),
    "it is being deleted": a_view(a_job(), a_workload(deleting=True)),
    "the copy of another cluster goes first": a_view(a_job(), suspended_on("west")),
    "nobody knows whether the job has ended": a_view(a_job(), ends_unknown()),
    "its copy is gone without an order": vanished(),
}


@pytest.mark.parametrize("view", WITHOUT.values(), ids=WITHOUT.keys())
def test_otherwise_it_is_admitted_without_one(view: JobView) -> None:
    decision = admits("w1", 1)
    assert written(view, decision) == verdicts.commands(view, view.slices[0], decision, now=NOW)


def test_a_suspended_copy_is_resumed_where_it_is() -> None:
    after = admitted(a_view(a_job(), suspended_on("east")), admits("w1", 1))
    order = order_of(after, "w1")
    assert order is not None
    assert (order.version, order.suspended, order.since) == (5, False, 5)


@pytest.mark.parametrize(
    "decision",
    [
        Wait(key=SliceKey("team/w2"), reason="Pending", message="4 cpu short", would_admit="4 cpu"),
        Evict(key=SliceKey("team/w1"), reason=EvictionReason.PREEMPTED, message="for another"),
    ],
)
def test_other_decisions_are_as_they_were(decision: Decision) -> None:
    slice = next(slice for slice in GROWS.slices if slice.key == decision.key)
    assert written(GROWS, decision) == verdicts.commands(GROWS, slice, decision, now=NOW)


def test_of_annotation_and_condition_the_newer_counts() -> None:
    """What is noted of an order later has its version."""
    after = admitted(GROWS, admits("w2", 5)).workloads["w2"]
    noted = {own_api.DISPATCHED_ANNOTATION: Dispatch(4, "hash", vanished=True).to_annotation()}
    order = Dispatch.from_manifest(merge_patch(after, {"metadata": {"annotations": noted}}))
    assert order is not None
    assert order.has_vanished
    earlier = {own_api.DISPATCHED_ANNOTATION: Dispatch(3, "hash").to_annotation()}
    order = Dispatch.from_manifest(merge_patch(after, {"metadata": {"annotations": earlier}}))
    assert order is not None
    assert order.version == 4
