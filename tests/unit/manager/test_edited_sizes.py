"""Somebody edits the replicas, or the bounds, of an autoscaled cluster on the manager."""

from typing import Any

import pytest
from msgspec import UNSET, structs

from slicebus.decisions.commands import Emit, Patch, Publish
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.job import edits, unmanaged
from slicebus.manager.decide.messages.inventory import forget_lost_requests
from slicebus.manager.decide.order import dispatch
from slicebus.manager.decide.order.outbox import next_version
from slicebus.manager.state.outbox import Dispatch
from slicebus.manager.state.requirements import SIZE_EDITED
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from unit.manager.objects import EAST, NOW, a_view
from unit.manager.test_groups import BEFORE, WANTED, a_job, admitted, first_slice, resized

Manifest = dict[str, Any]
EDITED = {"head": 1, "left": 8, "right": 1}


def autoscaled(job: Manifest) -> Manifest:
    return job | {"spec": job["spec"] | {"enableInTreeAutoscaling": True}}


def without_request(job: Manifest) -> Manifest:
    annotations = {k: v for k, v in job["metadata"]["annotations"].items() if k != api_names.REQUESTED_ANNOTATION}
    return job | {"metadata": job["metadata"] | {"annotations": annotations}}


RUNS = admitted(first_slice(autoscaled(a_job())))


def edited(*, asks: bool = False, autoscales: bool = True) -> JobView:
    """A cluster that runs with four, and whose spec says eight now."""
    job = a_job(replicas=8) if asks else without_request(a_job(replicas=8))
    return a_view(autoscaled(job) if autoscales else job, RUNS)


def test_it_is_no_resize() -> None:
    assert edited().desired.counts == BEFORE
    assert resized(edited()) == ([], [])


def test_what_the_autoscaler_has_asked_for_stands() -> None:
    view = edited(asks=True)
    assert view.desired.counts == WANTED
    assert view.desired.own == EDITED, "the worker is to know what it says"


def shown(view: JobView) -> list[str]:
    assert view.job is not None
    commands = unmanaged.run_on(view, view.job)
    assert [type(command) for command in commands] in ([], [Patch, Emit])
    return [command.reason for command in commands if isinstance(command, Emit)]


def test_its_user_is_told_once() -> None:
    view = edited()
    assert shown(view) == [SIZE_EDITED]
    assert view.job is not None
    [patch, event] = unmanaged.run_on(view, view.job)
    assert isinstance(patch, Patch)
    assert isinstance(event, Emit)
    assert event.note == (
        "Ray's autoscaler owns its size, and wants head=1 left=4 right=1 now: "
        "the replicas of its spec are for its next start"
    )
    annotations = view.job["metadata"]["annotations"] | {api_names.UNHEEDED_ANNOTATION: event.note}
    told = view.job | {"metadata": view.job["metadata"] | {"annotations": annotations}}
    assert shown(a_view(told, RUNS)) == []


@pytest.mark.parametrize(
    ("view", "counts"),
    [
        (edited(autoscales=False), EDITED),
        (structs.replace(edited(), checks=frozenset({"slicebus"})), EDITED),
        (a_view(autoscaled(without_request(a_job(replicas=8)))), EDITED),
        (a_view(autoscaled(without_request(a_job())), RUNS), BEFORE),
        (a_view(autoscaled(a_job()), RUNS), WANTED),
    ],
    ids=[
        "no autoscaler",
        "a Kueue reads it",
        "it does not run",
        "nothing was edited",
        "its autoscaler has asked since",
    ],
)
def test_otherwise_the_spec_or_the_last_request_counts(view: JobView, counts: Counts) -> None:
    assert view.desired.counts == counts
    assert shown(view) == []


def test_a_copy_that_is_made_anew_begins_with_the_spec_again() -> None:
    """Nobody stands by its request, and the slice that was made for it is larger."""
    grown = admitted(first_slice(autoscaled(a_job(replicas=8))))
    asked = a_view(autoscaled(a_job()), grown)
    [forgotten] = forget_lost_requests(asked, None, speaker=EAST, published_at=(9, 9))
    assert isinstance(forgotten, Patch)
    assert isinstance(forgotten.body, dict)
    assert a_view(merge_patch(autoscaled(a_job()), forgotten.body), grown).desired.counts == BEFORE
    later = merge_patch(autoscaled(a_job(replicas=2)), forgotten.body)
    assert a_view(later, grown).desired.counts == BEFORE, "an edit after that is for its next start"


def dispatched(job: Manifest, workload: Manifest) -> tuple[list[int], Manifest]:
    """The versions that are published, and the Workload when its cluster has reported them."""
    commands = reconcile(a_view(job, workload), NOW)
    for command in commands:
        if isinstance(command, Patch) and command.target is workload:
            assert isinstance(command.body, dict)
            workload = merge_patch(workload, command.body)
    versions = [
        c.message.spec_version for c in commands if isinstance(c, Publish) and isinstance(c.message, WorkloadSpec)
    ]
    applied = {api_names.APPLIED_ANNOTATION: str(max(versions, default=0))} if versions else {}
    return versions, merge_patch(workload, {"metadata": {"annotations": applied}})


def test_edited_bounds_are_dispatched_once() -> None:
    job = autoscaled(without_request(a_job()))
    first, workload = dispatched(job, RUNS)
    assert (len(first), dispatched(job, workload)[0]) == (1, [])
    groups = [group | {"maxReplicas": 7} for group in job["spec"]["workerGroupSpecs"]]
    wider = job | {"spec": job["spec"] | {"workerGroupSpecs": groups}}
    second, workload = dispatched(wider, workload)
    assert second == [first[0] + 1]
    assert dispatched(wider, workload)[0] == []


def switched(job: Manifest) -> Manifest:
    """The job with the autoscaler turned off where it was on, and the other way round, and eight replicas."""
    is_on, edited = job["spec"].get("enableInTreeAutoscaling", False), without_request(a_job(replicas=8))
    return edited if is_on else autoscaled(edited)


def test_the_autoscaler_with_which_its_copy_was_made_counts() -> None:
    """The switch reaches no copy that runs: a size that nobody carries out would take quota, and pods, from others."""
    scaled = autoscaled(without_request(a_job()))
    _, workload = dispatched(scaled, RUNS)
    off = a_view(switched(scaled), workload)
    assert (off.is_autoscaled, off.desired.counts, shown(off)) == (True, BEFORE, [SIZE_EDITED])
    assert resized(off) == ([], [])
    alone = without_request(a_job())
    _, workload = dispatched(alone, admitted(first_slice(a_job())))
    on = a_view(switched(alone), workload)
    assert (on.is_autoscaled, on.desired.counts, shown(on)) == (False, EDITED, [])


def with_hosts(job: Manifest, hosts: int) -> Manifest:
    groups = [group | {"numOfHosts": hosts} for group in job["spec"]["workerGroupSpecs"]]
    return job | {"spec": job["spec"] | {"workerGroupSpecs": groups}}


@pytest.mark.parametrize("autoscales", [False, True])
def test_another_number_of_hosts_is_no_resize(autoscales: bool) -> None:
    """Each replica that runs has as many as before: nobody asks for four times the pods."""
    job = without_request(a_job())
    job = autoscaled(job) if autoscales else job
    _, workload = dispatched(job, admitted(first_slice(job)))
    view = a_view(with_hosts(job, 4), workload)
    assert view.desired.counts == BEFORE
    told = [command for command in reconcile(view, NOW) if isinstance(command, Emit)]
    assert [command.reason for command in told] == [api_names.STRUCTURAL_CHANGE]
    assert "how many left and right has in a replica is changed when it is made anew" in told[0].note
    assert a_view(job, workload).resized_replicas == []


def test_it_may_take_no_idle_quota_when_it_is_turned_off() -> None:
    job = autoscaled(without_request(a_job()))
    job["metadata"]["annotations"][api_names.MAX_SIZE_ANNOTATION] = "left=9"
    _, workload = dispatched(job, admitted(first_slice(job)))
    off = job | {"spec": job["spec"] | {"enableInTreeAutoscaling": False}}
    for edited in (job, off):
        assert edits.elasticity(a_view(edited, workload), edited)[api_names.MAX_SIZE_ANNOTATION] is None
    assert edits.elasticity(a_view(off), off)[api_names.MAX_SIZE_ANNOTATION] == "left=8"


@pytest.mark.parametrize("has_copy", [True, False])
def test_a_copy_that_is_lost_is_made_by_the_present_spec(has_copy: bool) -> None:
    job = autoscaled(without_request(a_job()))
    _, workload = dispatched(job, RUNS)
    [patch] = dispatch.renew(a_view(switched(job), workload), above=7, has_copy=has_copy)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    _, renewed = dispatched(switched(job), merge_patch(workload, patch.body))
    assert a_view(switched(job), renewed).is_autoscaled is has_copy


def test_suspended_and_resumed_it_is_the_same_copy() -> None:
    job = autoscaled(without_request(a_job()))
    _, workload = dispatched(job, RUNS)
    view = a_view(switched(job), workload)
    assert view.outbox is not None
    suspends = Dispatch(version=0, hash="w", cluster=view.outbox.record.cluster, suspended=True)
    for wanted, autoscaled_now in ((suspends, True), (Dispatch.absent(EAST), UNSET)):
        assert next_version(view.outbox, wanted).autoscaled is autoscaled_now


def test_without_an_autoscaler_they_are_not() -> None:
    """The most replicas of a cluster that its user scales are a part of its size."""
    job = without_request(a_job())
    _, workload = dispatched(job, admitted(first_slice(a_job())))
    groups = [group | {"idleTimeoutSeconds": 7} for group in job["spec"]["workerGroupSpecs"]]
    assert dispatched(job | {"spec": job["spec"] | {"workerGroupSpecs": groups}}, workload)[0] == []
