"""The manifests and patches that the manager writes."""

from collections.abc import Mapping

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.messages import Counts, JobRef, Manifest
from slicebus.slices import kueue
from slicebus.slices.conditions import Finding, with_findings
from slicebus.slices.jobs.copies import without
from slicebus.slices.workload import Slice


def workload_manifest(
    job: Manifest,
    pod_sets: list[Manifest],
    *,
    ref: JobRef,
    name: str,
    annotations: dict[str, str],
    priority: Manifest,
) -> Manifest:
    """A new slice of a job, owned by the job. It says whose it is even when it has been orphaned unseen."""
    whose = {kueue.JOB_ANNOTATION: f"{ref.kind}/{ref.name}"}
    owner = {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
    return {
        "apiVersion": kueue.API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": ref.namespace,
            "labels": {kueue.JOB_UID_LABEL: ref.uid},
            "annotations": {kueue.ELASTIC_ANNOTATION: "true"} | whose | annotations,
            "finalizers": [kueue.RESOURCE_IN_USE_FINALIZER],
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "active": True,
            "queueName": job["metadata"]["labels"][kueue.QUEUE_NAME_LABEL],
            **priority,
            "podSets": pod_sets,
        },
    }


def priority_spec(job: Manifest, classes: Mapping[str, int]) -> Manifest:
    """The part of a Workload's spec that says its priority: that of the class which the job's label names, else 0.

    Raises LookupError for a class that is not there.
    """
    name = priority_class(job)
    if not name:
        return {"priority": 0}
    ref = {"group": kueue.GROUP, "kind": "WorkloadPriorityClass", "name": name}
    return {"priority": classes[name], "priorityClassRef": ref}


def priority_class(job: Manifest) -> str:
    """The WorkloadPriorityClass that a job names; empty for none."""
    name: str = job["metadata"].get("labels", {}).get(kueue.PRIORITY_CLASS_LABEL, "")
    return name


def counts_patch(workload: Manifest, counts: Counts) -> Manifest:
    """Other counts for the pod sets of a Workload. A merge patch replaces the whole list."""
    pod_sets = workload["spec"]["podSets"]
    return {"spec": {"podSets": [pod_set | {"count": counts[pod_set["name"]]} for pod_set in pod_sets]}}


def annotation_patch(name: str, value: str) -> Manifest:
    """One annotation to set."""
    return {"metadata": {"annotations": {name: value}}}


def findings_patch(target: Manifest, *findings: Finding, now: str) -> Manifest:
    """Conditions to set in `/status`. A merge patch replaces the whole list."""
    return {"status": {"conditions": with_findings(target, *findings, now=now)}}


def finalizer_patch(workload: Manifest, finalizer: str = kueue.RESOURCE_IN_USE_FINALIZER) -> Manifest:
    """The Workload without our finalizer."""
    kept = [name for name in workload["metadata"].get("finalizers", ()) if name != finalizer]
    return {"metadata": {"finalizers": kept}}


def has_finalizer(workload: Manifest, finalizer: str = kueue.RESOURCE_IN_USE_FINALIZER) -> bool:
    """Whether the manager still holds the Workload."""
    return finalizer in workload["metadata"].get("finalizers", ())


def without_server_fields(manifest: Manifest) -> Manifest:
    """An object as it travels: what only its own API server understands is left out."""
    return manifest | {"metadata": without(manifest["metadata"], ("resourceVersion",))}


def merge_difference(present: Manifest, wanted: Manifest) -> Manifest:
    """The JSON merge patch (RFC 7396) that makes `wanted` of `present`; empty when they are equal."""
    difference: Manifest = dict.fromkeys(present.keys() - wanted.keys())
    for name, value in wanted.items():
        old = present.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            if inner := merge_difference(old, value):
                difference[name] = inner
        elif old != value:
            difference[name] = value
    return difference


def write_status(job: Manifest, wanted: Manifest) -> list[Command]:
    """The command that makes the status of a job the wanted one; none when it is."""
    difference = merge_difference(job.get("status", {}), wanted)
    if not difference:
        return []
    resource = JOB_RESOURCES[job["kind"]]
    return [Patch(resource=resource, target=job, body={"status": difference}, subresource="status")]


def free_name(base: str, slices: tuple[Slice, ...]) -> str:
    """`base`, or a variant of it where a slice of the job that has ended, or was granted a part, has the name."""
    taken = {slice.name for slice in slices if slice.finished or slice.admission is not None}
    name, attempt = base, 1
    while name in taken:
        attempt += 1
        name = f"{base[:60]}-{attempt}"
    return name
