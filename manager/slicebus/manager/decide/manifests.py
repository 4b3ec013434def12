"""The manifests and patches that the manager writes."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from slicebus.decisions.commands import Command, Patch, Remember
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.messages import Counts, JobRef, Manifest, PodSetFlavor
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import Finding, with_findings
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.copies import without
from slicebus.slices.workload.workload import Slice

NOT_YET_READY = Finding(Condition.PODS_READY, False, kueue.WAIT_FOR_START, "Not all pods are ready or succeeded")
"""The finding of a slice whose pods are to start."""


def workload_manifest(
    job: Manifest,
    pod_sets: list[Manifest],
    *,
    ref: JobRef,
    name: str,
    queue: str,
    annotations: dict[str, str],
    spec: Manifest,
    labels: Mapping[str, str] = {},
) -> Manifest:
    """The Workload of a new slice; `spec` has its priority and further fields. It names its job in an annotation too,
    because it may be orphaned unseen."""
    job_name = {api_names.JOB_ANNOTATION: f"{ref.kind}/{ref.name}"}
    owner = {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
    return {
        "apiVersion": kueue.API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": ref.namespace,
            "labels": {kueue.JOB_UID_LABEL: ref.uid, **labels},
            "annotations": job_name | annotations,
            "finalizers": [kueue.RESOURCE_IN_USE_FINALIZER],
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "active": True,
            "queueName": queue,
            **spec,
            "podSets": pod_sets,
        },
    }


def pod_set_flavor(flavors: Mapping[str, Manifest], names: Iterable[str]) -> PodSetFlavor:
    """The node labels and tolerations of every flavor that a pod set was given. `flavors` are the ResourceFlavors by
    name."""
    node_labels: dict[str, str] = {}
    tolerations: list[Manifest] = []
    for name in dict.fromkeys(names):
        spec = flavors.get(name, {}).get("spec", {})
        node_labels |= spec.get("nodeLabels", {})
        tolerations += [toleration for toleration in spec.get("tolerations", ()) if toleration not in tolerations]
    return PodSetFlavor(node_labels=node_labels, tolerations=tolerations)


def priority_spec(name: str, classes: Mapping[str, int]) -> Manifest:
    """The priority fields of a Workload's spec, by the name of its class; 0 without one.

    Raises LookupError for a class that does not exist.
    """
    if not name:
        return {"priority": 0}
    ref = {"group": kueue.GROUP, "kind": "WorkloadPriorityClass", "name": name}
    return {"priority": classes[name], "priorityClassRef": ref}


def priority_class(job: Manifest) -> str:
    """The WorkloadPriorityClass that a job names; empty for none."""
    name: str = job["metadata"].get("labels", {}).get(kueue.PRIORITY_CLASS_LABEL, "")
    return name


def counts_patch(workload: Manifest, counts: Counts) -> Manifest:
    """A patch of the counts of a Workload's pod sets. A merge patch replaces the whole list."""
    pod_sets = workload["spec"]["podSets"]
    return {"spec": {"podSets": [pod_set | {"count": counts[pod_set["name"]]} for pod_set in pod_sets]}}


def annotation_patch(name: str, value: str | None) -> Manifest:
    """A patch that sets one annotation; None removes it."""
    return {"metadata": {"annotations": {name: value}}}


def findings_patch(target: Manifest, *findings: Finding, now: str) -> Manifest:
    """A patch that sets conditions in `/status`. A merge patch replaces the whole list."""
    return {"status": {"conditions": with_findings(target, *findings, now=now)}}


def with_annotations(target: Manifest, patch: Patch) -> Manifest:
    """The object as it is after a patch of its metadata."""
    assert isinstance(patch.body, dict)
    metadata, written = target["metadata"], patch.body["metadata"]
    annotations = metadata.get("annotations", {}) | written["annotations"]
    return target | {"metadata": metadata | written | {"annotations": annotations}}


def finalizer_patch(workload: Manifest, finalizer: str = kueue.RESOURCE_IN_USE_FINALIZER) -> Manifest:
    """A patch that removes our finalizer."""
    kept = [name for name in workload["metadata"].get("finalizers", ()) if name != finalizer]
    return {"metadata": {"finalizers": kept}}


def one_write_each(commands: Sequence[Command]) -> list[Command]:
    """The commands with all annotations of one object in one patch: a second one would conflict with the first."""
    merged: list[Command] = []
    for command in commands:
        written = _annotations_of(command)
        for number, other in enumerate(merged):
            before = _annotations_of(other)
            if not (written and before and isinstance(command, Patch) and isinstance(other, Patch)):
                continue
            if other.target is command.target:
                merged[number] = msgspec.structs.replace(other, body={"metadata": {"annotations": before | written}})
                break
        else:
            merged.append(command)
    return merged


def _annotations_of(command: Command) -> dict[str, str | None] | None:
    """What a patch of nothing but annotations writes; None for every other command."""
    match command:
        case Patch(body={"metadata": {"annotations": dict() as written} as metadata} as body, subresource=""):
            return written if len(metadata) == len(body) == 1 else None
        case _:
            return None


def has_finalizer(workload: Manifest, finalizer: str = kueue.RESOURCE_IN_USE_FINALIZER) -> bool:
    """Whether the Workload has our finalizer."""
    return finalizer in workload["metadata"].get("finalizers", ())


def without_server_fields(manifest: Manifest) -> Manifest:
    """An object for a message: without the fields that only its own API server understands."""
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


def write_status(
    job: Manifest, wanted: Manifest, *, if_refused: Remember | None = None, only_shows: bool = False
) -> list[Command]:
    """The command that gives a job the wanted status, and nothing else in it; none when it has it. `if_refused` and
    `only_shows` as in `Patch`."""
    difference = merge_difference(job.get("status", {}), wanted)
    if not difference:
        return []
    return [
        Patch(
            resource=JOB_RESOURCES[job["kind"]],
            target=job,
            body={"status": difference},
            subresource="status",
            if_refused=if_refused,
            only_shows=only_shows,
        )
    ]


def show_finding(job: Manifest, finding: Finding, *, now: str) -> list[Command]:
    """The command that shows a finding on a job as its kind does, beside the rest of its status; none when it does."""
    shown = KINDS[job["kind"]].refusal.status(job, finding, now=now)
    return write_status(job, job.get("status", {}) | shown, only_shows=True)


def free_name(base: str, slices: tuple[Slice, ...]) -> str:
    """`base`, or a numbered variant where a finished or admitted slice of the job has that name."""
    taken = {slice.name for slice in slices if slice.finished or slice.admission is not None}
    name, attempt = base, 1
    while name in taken:
        attempt += 1
        name = f"{base[:60]}-{attempt}"
    return name
