"""Pods of a job have ended for good: its slice keeps its counts, and the quota of those pods is free."""

import pytest

from slicebus.decisions.commands import Create, Patch, Publish
from slicebus.manager.decide.admission import evictions
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.kueue import beside_kueue
from slicebus.manager.decide.messages import message_handlers
from slicebus.manager.state.annotations import SizeRequest
from slicebus.proto.errors import ProtocolError
from slicebus.proto.messages import Counts, Manifest, ScaleRequest, WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.workload.workload import Slice
from unit.manager.objects import NOW, REF, a_job, a_view, a_workload, an_envelope, asking, desired_of
from unit.manager.test_beside_kueue import kueues_workload, places
from unit.manager.test_evictions import evicted, forgetting

THREE: Counts = {"main": 3}
RECLAIMABLE = [{"name": "main", "count": 3}]


def runs(*, reclaimable: bool = False) -> Manifest:
    """A slice of five pods, which its worker has."""
    workload = a_workload(count=5, admitted=5, dispatched=3, applied=3)
    return merge_patch(workload, {"status": {"reclaimablePods": RECLAIMABLE}}) if reclaimable else workload


def ended(wanted: int = 2, finished: Counts = THREE) -> Manifest:
    """A job of five pods whose worker asks for so many, as others have ended."""
    return asking(5, wanted, finished=finished)


def test_they_become_reclaimable_and_the_counts_stay() -> None:
    view = a_view(ended(), runs())
    [patch] = reconcile(view, NOW)
    assert isinstance(patch, Patch)
    assert (patch.subresource, patch.body) == ("status", {"status": {"reclaimablePods": RECLAIMABLE}})


def test_then_the_worker_gets_the_lower_grant_and_the_whole_job() -> None:
    view = a_view(ended(), runs(reclaimable=True), published=3)
    [spec] = [command.message for command in reconcile(view, NOW) if isinstance(command, Publish)]
    assert isinstance(spec, WorkloadSpec)
    assert spec.granted == {"main": 2}
    assert spec.manifest["spec"]["parallelism"] == 5
    assert spec.workload["spec"]["podSets"][0]["count"] == 5


@pytest.mark.parametrize(("edited_to", "wanted"), [(5, 2), (6, 6)], ids=["to the size that it has", "to another"])
def test_an_edit_of_the_spec_counts_them_until_the_worker_says_more(edited_to: int, wanted: int) -> None:
    """An edit to the size of the worker's job changes nothing there, so its agent has nothing to ask for."""
    asked = ended()
    edited = merge_patch(asking(4, 2, finished=THREE), {"spec": {"parallelism": edited_to}})
    assert a_view(asked, runs()).desired.counts == {"main": 2}
    desired = a_view(edited, runs()).desired
    assert (desired.counts, desired.own) == ({"main": wanted}, {"main": edited_to})


def test_a_job_that_is_made_anew_grows_again() -> None:
    """Nobody stands by the request any more, and a new copy begins with all its pods."""
    [create] = [
        command for command in reconcile(a_view(a_job(5), runs(reclaimable=True)), NOW) if isinstance(command, Create)
    ]
    assert create.manifest["spec"]["podSets"][0]["count"] == 5


def test_an_evicted_slice_has_none() -> None:
    workload = merge_patch(evicted(version=4, applied=4), {"status": {"reclaimablePods": RECLAIMABLE}})
    view, wanted = a_view(forgetting(5), workload, published=4), {"main": 5}
    [patch] = evictions.reconcile(view, view.slices[0], wanted=wanted, now=NOW)
    assert isinstance(patch, Patch)
    after = Slice.from_manifest(merge_patch(workload, patch.body))
    assert (after.admission, after.reclaimable) == (None, {})


def test_an_evicted_slice_is_never_charged_for_more_than_it_was() -> None:
    workload = merge_patch(evicted(version=4, applied=4), {"status": {"reclaimablePods": RECLAIMABLE}})
    usage = [Slice.from_manifest(workload).usage]
    for _ in range(3):
        view = a_view(forgetting(8), workload, published=4)
        for command in evictions.reconcile(view, view.slices[0], wanted={"main": 8}, now=NOW):
            assert isinstance(command, Patch)
            workload = merge_patch(workload, command.body)
        usage.append(Slice.from_manifest(workload).usage)
    assert usage == [*[{("spot", "cpu"): 2000}] * 3, {}]


def test_beside_a_kueue_the_spec_keeps_its_size() -> None:
    """Kueue itself reads from the status how many are reclaimable."""
    view = a_view(ended(), kueues_workload(count=5, admitted=True, state="Ready"), checks=frozenset({"slicebus"}))
    patches = [command for command in beside_kueue.reconcile(view, places("east"), NOW) if isinstance(command, Patch)]
    assert not [patch for patch in patches if patch.target is view.job and "spec" in patch.body]


def a_request(finished: Counts) -> ScaleRequest:
    return ScaleRequest(
        job=REF,
        workload="w1",
        worker_uid="w-1",
        worker_generation=3,
        granted={"main": 5},
        wanted={"main": 2},
        finished=finished,
    )


def test_the_request_keeps_them_until_it_is_cleared() -> None:
    view = a_view(a_job(5), runs())
    [patch] = message_handlers.scale_request(view, a_request(THREE), an_envelope())
    assert isinstance(patch, Patch)
    job = merge_patch(a_job(5), patch.body)
    desired, requested = desired_of(job), SizeRequest.from_manifest(patch.body)
    assert (desired.counts, desired.finished, desired.spec_counts) == ({"main": 2}, THREE, {"main": 5})
    assert requested is not None
    assert requested.cleared().finished == {}


@pytest.mark.parametrize("finished", [{"main": -1}, {"main": 100_001}, {"other": 1}], ids=str)
def test_a_request_with_impossible_counts_is_refused(finished: Counts) -> None:
    with pytest.raises(ProtocolError, match="pods that have ended"):
        message_handlers.scale_request(a_view(a_job(5), runs()), a_request(finished), an_envelope())


def test_an_edit_on_the_manager_is_newer() -> None:
    edited = merge_patch(ended(), {"spec": {"parallelism": 4}})
    assert api_names.REQUESTED_ANNOTATION in edited["metadata"]["annotations"]
    assert desired_of(edited).finished == {}
