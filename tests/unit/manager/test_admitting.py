"""An admission is written in one with the order that follows from it."""

from typing import Any

import pytest
from msgspec import structs

from slicebus.decisions.commands import Command, Patch
from slicebus.manager.decide.admission import admission_writes, admitting, builtin
from slicebus.manager.decide.modes import Builtin
from slicebus.manager.state.outbox import Dispatch
from slicebus.manager.state.views import JobView
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Wait
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.workload.workload import Admission, FlavorName, PodSetAssignment, SliceKey
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
    assert shorts(builtin.reconcile(after, NOW)) == [("workload-spec to east", 1)], "only that is left to do"


def test_the_order_of_a_resize_comes_with_its_admission() -> None:
    after = admitted(GROWS, admits("w2", 5))
    assert after.outbox is not None
    assert (after.outbox.record.version, after.outbox.record.answers.worker_generation) == (4, 2)
    assert shorts(builtin.reconcile(after, NOW))[:2] == [
        ("w1", "Finished=True WorkloadSliceReplaced"),
        ("workload-spec to east", 4),
    ]


def test_it_is_the_order_that_a_reconcile_would_have_written() -> None:
    [patch, *_] = admission_writes.commands(FIRST, FIRST.slices[0], admits("w1", 1), now=NOW)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    plain = FIRST.with_workload(merge_patch(patch.target, patch.body))
    [write, *_] = without_notes(builtin.reconcile(plain, NOW))
    assert Dispatch.from_manifest(write.body) == order_of(admitted(FIRST, admits("w1", 1)), "w1")


def suspended_on(cluster: str) -> Manifest:
    workload = a_workload(conditions=(condition("Evicted", True, "Preempted"),), applied=4)
    record = Dispatch(4, "hash", cluster=cluster, suspended=True)
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
    return workload


def ends_unknown() -> Manifest:
    workload = withdrawn(dispatched=4, applied=4)
    record = Dispatch(4, api_names.ABSENT, cluster="east", unknown_end=True)
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
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
    assert written(view, decision) == admission_writes.commands(view, view.slices[0], decision, now=NOW)


def edited(job: Manifest) -> JobView:
    """A job that waits since before it was edited, where jobs of a fixed size are run."""
    return structs.replace(a_view(job, a_workload()), fixed_jobs=True)


def larger() -> Manifest:
    job = a_job()
    job["spec"]["template"] = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    return job


def elsewhere() -> Manifest:
    job = a_job()
    template = job["spec"]["template"]
    job["spec"]["template"] = template | {"spec": template["spec"] | {"nodeSelector": {"pool": "large"}}}
    return job


EDITS = {
    "queue": edited(a_job(labels={kueue.QUEUE_NAME_LABEL: "other"})),
    "place": edited(a_job(annotations={api_names.CLUSTER_SELECTOR_ANNOTATION: "region=eu"})),
    "elastic or not": edited(a_job(annotations={kueue.ELASTIC_ANNOTATION: "false"})),
    "what its pods request": edited(larger()),
    "on which nodes they run": edited(elsewhere()),
}


@pytest.mark.parametrize("view", EDITS.values(), ids=EDITS.keys())
def test_what_somebody_has_edited_comes_before_the_admission(view: JobView) -> None:
    """It would not count before the next start."""
    [copy] = builtin.reconcile(view, NOW)
    assert isinstance(copy, Patch)
    assert isinstance(copy.body, dict)
    [slice], decision = view.slices, admits("w1", 1)
    for in_turn in (True, False):
        assert Builtin().apply(view, slice, decision, in_turn=in_turn, now=NOW) == []
    waits = Wait(key=slice.key, reason="Pending", message="4 cpu short", would_admit="4 cpu")
    assert Builtin().apply(view, slice, waits, in_turn=True, now=NOW) != []
    after = view.with_workload(merge_patch(copy.target, copy.body))
    assert Builtin().apply(after, after.slices[0], decision, in_turn=True, now=NOW) != []


@pytest.mark.parametrize("elastic", ["true", "false"])
def test_another_size_comes_before_it_where_the_job_keeps_its_size(elastic: str) -> None:
    annotations, workload = {kueue.ELASTIC_ANNOTATION: elastic}, a_workload()
    workload["metadata"]["annotations"] |= annotations
    view = structs.replace(a_view(a_job(3, annotations=annotations), workload), fixed_jobs=True)
    written = Builtin().apply(view, view.slices[0], admits("w1", 1), in_turn=True, now=NOW)
    assert bool(written) is (elastic == "true")


def test_edits_hold_up_nothing_where_nobody_copies_them() -> None:
    view = vanished()
    assert view.job is not None
    view.job["metadata"]["labels"][kueue.QUEUE_NAME_LABEL] = "other"
    assert Builtin().apply(view, view.slices[0], admits("w1", 1), in_turn=True, now=NOW) != []


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
    assert written(GROWS, decision) == admission_writes.commands(GROWS, slice, decision, now=NOW)


def test_of_annotation_and_condition_the_newer_counts() -> None:
    """What is noted of an order later has its version."""
    after = admitted(GROWS, admits("w2", 5)).workloads["w2"]
    noted = {api_names.DISPATCHED_ANNOTATION: Dispatch(4, "hash", vanished=True).to_annotation()}
    order = Dispatch.from_manifest(merge_patch(after, {"metadata": {"annotations": noted}}))
    assert order is not None
    assert order.has_vanished
    earlier = {api_names.DISPATCHED_ANNOTATION: Dispatch(3, "hash").to_annotation()}
    order = Dispatch.from_manifest(merge_patch(after, {"metadata": {"annotations": earlier}}))
    assert order is not None
    assert order.version == 4
