"""Jobs without the elastic annotation, where a setting has them run: one Workload each, whose size stays."""

from typing import Any

import pytest
from msgspec import structs

from slicebus.decisions.commands import Create, Emit, Patch, Publish
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.job import unmanaged, waiting
from slicebus.manager.state.requirements import FIXED_SIZE, is_managed, missing
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Pending, WorkloadSpec
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.waiting import Waiting
from unit.manager.objects import NOW, a_job, a_workload, asking, shorts
from unit.manager.objects import a_view as a_view_of

Manifest = dict[str, Any]
FIXED = {kueue.ELASTIC_ANNOTATION: "false"}


def fixed(workload: Manifest) -> Manifest:
    del workload["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
    return workload


def inelastic(job: Manifest) -> Manifest:
    job["metadata"]["annotations"] |= FIXED
    return job


def a_view(job: Manifest, *workloads: Manifest, fixed_jobs: bool = True) -> JobView:
    return structs.replace(a_view_of(job, *workloads), fixed_jobs=fixed_jobs)


def test_they_are_run_by_a_setting() -> None:
    job = a_job(annotations=FIXED)
    assert [is_managed(job, fixed_jobs=setting) for setting in (False, True)] == [False, True]
    assert [len(list(missing(job, fixed_jobs=setting))) for setting in (False, True)] == [1, 0]
    assert reconcile(a_view(job, fixed_jobs=False), NOW) == []


@pytest.mark.parametrize(("elastic", "annotation"), [(False, None), (True, "true")])
def test_their_workload_is_not_elastic(elastic: bool, annotation: str | None) -> None:
    [create, _] = reconcile(a_view(a_job(3) if elastic else a_job(3, annotations=FIXED)), NOW)
    assert isinstance(create, Create)
    assert create.manifest["metadata"]["annotations"].get(kueue.ELASTIC_ANNOTATION) == annotation
    assert create.manifest["spec"]["podSets"][0]["count"] == 3


def test_ray_with_the_autoscaler_on_has_to_be_elastic() -> None:
    view = a_view(a_job(annotations=FIXED))
    job = a_job(annotations=FIXED) | {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
    template = {"spec": {"containers": [{"name": "ray", "resources": {"requests": {"cpu": "1"}}}]}}
    job["spec"] |= {"enableInTreeAutoscaling": True, "headGroupSpec": {"template": template}}
    ref = structs.replace(view.ref, kind="RayCluster", api_version="ray.io/v1")
    commands = reconcile(structs.replace(a_view(job), ref=ref), NOW)
    [event] = [each for each in commands if isinstance(each, Emit)]
    assert event.reason == "AutoscalingOfFixedSize"


def specs(view: JobView) -> list[Manifest]:
    return [
        each.message.manifest["spec"]
        for each in reconcile(view, NOW)
        if isinstance(each, Publish) and isinstance(each.message, WorkloadSpec)
    ]


@pytest.mark.parametrize("edited", [1, 3, 8])
def test_while_they_have_quota_an_edit_changes_nothing_and_is_told(edited: int) -> None:
    view = a_view(a_job(edited, annotations=FIXED), fixed(a_workload(count=3, admitted=3)))
    assert view.desired.counts == {"main": 3}
    assert [each for each in shorts(reconcile(view, NOW)) if "counts" in each] == []
    assert [spec["parallelism"] for spec in specs(view)] == [3], "the worker's job keeps it too"
    assert view.job is not None
    told = unmanaged.run_on(view, view.job)
    notes = [each.note for each in told if isinstance(each, Emit) and each.reason == FIXED_SIZE]
    message = "it was started at the fixed size main=3, and keeps it while it has quota"
    assert notes == ([] if edited == 3 else [message])


def test_the_annotation_counts_from_their_next_start() -> None:
    running = a_view(a_job(3), fixed(a_workload(count=3, admitted=3)))
    assert running.is_fixed
    assert running.job is not None
    [_, event] = unmanaged.run_on(running, running.job)
    assert isinstance(event, Emit)
    assert event.reason == FIXED_SIZE
    for job, workload, expected in (
        (a_job(3), fixed(a_workload(count=3)), "true"),
        (a_job(3, annotations=FIXED), a_workload(count=3), None),
    ):
        [set_elastic] = reconcile(a_view(job, workload), NOW)
        assert isinstance(set_elastic, Patch)
        assert set_elastic.body == {"metadata": {"annotations": {kueue.ELASTIC_ANNOTATION: expected}}}
    assert reconcile(a_view(a_job(3, annotations=FIXED), a_workload(count=3), fixed_jobs=False), NOW) == []


def test_while_they_wait_an_edit_is_another_size() -> None:
    changed = shorts(reconcile(a_view(a_job(5, annotations=FIXED), fixed(a_workload(count=3))), NOW))
    assert changed == [("w1", "counts", {"main": 5})]


def test_a_job_that_was_started_elastic_stays_so_until_its_next_start() -> None:
    view = a_view(a_job(5, annotations=FIXED), a_workload(count=3, admitted=3))
    assert not view.is_fixed
    assert view.desired.counts == {"main": 5}
    assert view.job is not None
    [_, event] = unmanaged.run_on(view, view.job)
    assert isinstance(event, Emit)
    assert event.reason == "OptInRemoved"


@pytest.mark.parametrize(("wanted", "shown"), [(5, 5), (3, None), (1, None)])
def test_a_resize_on_the_worker_is_told_there_and_gets_nothing(wanted: int, shown: int | None) -> None:
    view = a_view(inelastic(asking(3, wanted)), fixed(a_workload(count=3, admitted=3)))
    assert view.desired.counts == {"main": 3}
    commands = waiting.reconcile(view)
    written = [Waiting.from_manifest(each.body) for each in commands if isinstance(each, Patch)]  # type: ignore[arg-type]
    notices = [each.message for each in commands if isinstance(each, Publish)]
    if shown is None:
        assert (written, notices) == ([], [])
        return
    [told], [notice] = written, notices
    assert told is not None
    assert isinstance(notice, Pending)
    assert (told.wanted, told.granted, told.reason) == ({"main": 5}, {"main": 3}, FIXED_SIZE)
    assert kueue.ELASTIC_ANNOTATION in notice.message


def test_what_a_worker_gave_up_by_a_mixed_resize_is_not_shown_as_granted() -> None:
    """It grants no more than it asks for until it is answered."""
    view = a_view(inelastic(asking(3, 5)), fixed(a_workload(count=3, admitted=3)))
    requested = view.desired.requested
    assert requested is not None
    assert view.holder is not None
    mixed = structs.replace(requested, counts={"main": 5, "small": 1}, baseline={"main": 3})
    job = inelastic(a_job(3, annotations={api_names.REQUESTED_ANNOTATION: mixed.to_annotation()}))
    workload = fixed(a_workload(count=3, admitted=3))
    pod_set, [assigned] = workload["spec"]["podSets"][0], workload["status"]["admission"]["podSetAssignments"]
    workload["spec"]["podSets"].append(pod_set | {"name": "small", "count": 4})
    workload["status"]["admission"]["podSetAssignments"].append(assigned | {"name": "small", "count": 4})
    wait = waiting.reason_for(a_view(job, workload))
    assert wait is not None
    assert wait.shown.granted == {"main": 3, "small": 1}


def test_pods_that_have_ended_give_their_quota_back() -> None:
    asked = inelastic(asking(3, 1))
    view = a_view(asked, fixed(a_workload(count=3, admitted=3)))
    assert view.desired.requested is not None
    ended = structs.replace(view.desired.requested, finished={"main": 2})
    asked["metadata"]["annotations"][api_names.REQUESTED_ANNOTATION] = ended.to_annotation()
    view = a_view(asked, fixed(a_workload(count=3, admitted=3, dispatched=1)))
    [reclaim, *_] = reconcile(view, NOW)
    assert isinstance(reclaim, Patch)
    assert reclaim.body == {"status": {"reclaimablePods": [{"name": "main", "count": 2}]}}
