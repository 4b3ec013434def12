"""A resize in which one group of a cluster shrinks and another grows."""

from typing import Any

import msgspec

from slicebus.decisions.commands import Command, Create, Emit, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.state.outbox import Dispatch
from slicebus.manager.state.views import JobView
from slicebus.slices.api import api_names, kueue
from unit.manager.objects import CONTENT, NOW, a_view, requested
from unit.slices.jobs.manifests import a_cluster, a_group

Manifest = dict[str, Any]
TRUE = {"status": "True", "reason": "Some", "message": "", "lastTransitionTime": NOW}
BEFORE = {"head": 1, "left": 4, "right": 1}
WANTED = {"head": 1, "left": 2, "right": 3}


def a_job(replicas: int = 4) -> Manifest:
    job = a_cluster(a_group("left", replicas=replicas), a_group("right", replicas=1), suspend=False)
    asked = requested(WANTED, generation=2)
    asked = msgspec.structs.replace(asked, baseline=BEFORE, granted=BEFORE)
    annotations = {kueue.ELASTIC_ANNOTATION: "true", api_names.REQUESTED_ANNOTATION: asked.to_annotation()}
    metadata = {"name": "demo", "namespace": "team", "uid": "u1", "resourceVersion": "17", "annotations": annotations}
    return job | {"metadata": metadata | {"labels": {kueue.QUEUE_NAME_LABEL: "lq"}}}


def first_slice(job: Manifest) -> Manifest:
    bare = job["metadata"] | {"annotations": {kueue.ELASTIC_ANNOTATION: "true"}}
    [create] = [each for each in reconcile(a_view(job | {"metadata": bare}), NOW) if isinstance(each, Create)]
    workload: Manifest = create.manifest | {"metadata": create.manifest["metadata"] | {"uid": "s1"}}
    workload["metadata"]["resourceVersion"] = "20"
    return workload


def admitted(workload: Manifest) -> Manifest:
    given = [{"name": each["name"], "count": each["count"], "flavors": {}} for each in workload["spec"]["podSets"]]
    conditions = [TRUE | {"type": name} for name in ("QuotaReserved", "Admitted")]
    admission = {"clusterQueue": "cq", "podSetAssignments": given}
    record = {api_names.DISPATCHED_ANNOTATION: Dispatch(1, CONTENT).to_annotation(), api_names.APPLIED_ANNOTATION: "1"}
    metadata = workload["metadata"] | {"annotations": workload["metadata"]["annotations"] | record}
    return workload | {
        "metadata": metadata,
        "status": {"admission": admission, "clusterName": "east", "conditions": conditions},
    }


def resized(view: JobView) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """The counts of the slices that are made, and those that slices are changed to."""

    def counts(manifest: Any) -> dict[str, int]:
        return {each["name"]: each["count"] for each in manifest["spec"]["podSets"]}

    def changes(command: Command) -> bool:
        return isinstance(command, Patch) and command.resource is WORKLOADS and "spec" in command.body

    commands = reconcile(view, NOW)
    made = [counts(each.manifest) for each in commands if isinstance(each, Create)]
    return made, [counts(each.body) for each in commands if isinstance(each, Patch) and changes(each)]


def test_what_one_group_gives_up_is_free_while_the_other_waits() -> None:
    job = a_job()
    workload = admitted(first_slice(job))
    made, changed = resized(a_view(job, workload))
    assert made == [WANTED]
    assert changed == [{"head": 1, "left": 2, "right": 1}]


def test_a_size_of_the_spec_frees_nothing_before_its_worker_has_asked() -> None:
    job = a_job(replicas=2)
    del job["metadata"]["annotations"][api_names.REQUESTED_ANNOTATION]
    workload = admitted(first_slice(a_job()))
    job["spec"]["workerGroupSpecs"][1]["replicas"] = 3
    made, changed = resized(a_view(job, workload))
    assert made == [{"head": 1, "left": 4, "right": 3}]
    assert changed == []


RENAMED = {"head": 1, "other": 4, "right": 1}


def a_renamed_job(**group: Any) -> Manifest:
    """Its user has renamed a group while it runs, and its worker asks for another size of those that it has."""
    job = a_cluster(a_group("other", replicas=4, **group), a_group("right", replicas=1), suspend=False)
    asked = msgspec.structs.replace(requested(WANTED, generation=2), baseline=RENAMED, granted=BEFORE)
    annotations = {kueue.ELASTIC_ANNOTATION: "true", api_names.REQUESTED_ANNOTATION: asked.to_annotation()}
    return job | {"metadata": a_job()["metadata"] | {"annotations": annotations}}


def test_a_job_that_runs_is_resized_with_the_pod_sets_that_it_has() -> None:
    workload = admitted(first_slice(a_job()))
    view = a_view(a_renamed_job(), workload)
    assert resized(view)[0] == [WANTED]
    [shown] = [each for each in reconcile(view, NOW) if isinstance(each, Emit) and each.warning]
    assert "adds other and removes left" in shown.note, "and its user is told that it keeps them"


def test_whole_replicas_of_a_renamed_group_stay_whole() -> None:
    workload = admitted(first_slice(a_job()))
    workload["metadata"]["annotations"][api_names.REPLICA_SIZES_ANNOTATION] = '{"left":2}'
    [made] = [each for each in reconcile(a_view(a_renamed_job(), workload), NOW) if isinstance(each, Create)]
    assert made.manifest["metadata"]["annotations"][api_names.REPLICA_SIZES_ANNOTATION] == '{"left":2}'


def test_its_next_start_has_the_pod_sets_of_its_spec() -> None:
    finished = admitted(first_slice(a_job()))
    finished["status"]["conditions"].append(TRUE | {"type": "Finished"})
    assert resized(a_view(a_renamed_job(), finished))[0] == [RENAMED]
