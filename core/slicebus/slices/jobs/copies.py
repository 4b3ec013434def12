"""Makes a worker's copy of a job, as far as every kind does the same."""

import re
from collections.abc import Iterable
from typing import Any

from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.annotation_values import too_many
from slicebus.slices.api.fingerprints import content_hash
from slicebus.slices.api.levels import MOST_LEVELS, is_too_deep
from slicebus.slices.jobs.base import Placement, Problem
from slicebus.slices.jobs.fit import misfit
from slicebus.slices.jobs.shapes import TemplateShape
from slicebus.slices.jobs.template_shape import INVALID_POD_TEMPLATE
from slicebus.slices.workload.pod_requests import container_resources, pod_requests, with_container_resources
from slicebus.slices.workload.redis_cleanup import NODE_TYPE_LABEL

Manifest = dict[str, Any]

PARENT_LABELS = PARENT_NAME, PARENT_KIND = ("ray.io/originated-from-cr-name", "ray.io/originated-from-crd")
"""By these KubeRay says of a RayCluster which RayJob or RayService it was made for."""
_DROPPED_LABELS = (kueue.QUEUE_NAME_LABEL, kueue.PRIORITY_CLASS_LABEL, *PARENT_LABELS, *api_names.AGENTS_OWN)
"""Without a queue name a Kueue on the worker leaves the job and its pods alone. With a parent's name its agent would
take its changes for that one's."""
_DROPPED_ANNOTATIONS = (
    "kubectl.kubernetes.io/last-applied-configuration",
    kueue.QUEUE_NAME_LABEL,
    *api_names.AGENTS_OWN,
    api_names.DISPATCHED_ANNOTATION,
    api_names.APPLIED_ANNOTATION,
    api_names.UNHEEDED_ANNOTATION,
    api_names.UNSHOWN_ANNOTATION,
    api_names.SUSPENDED_ANNOTATION,
    api_names.SPEC_COUNTS_ANNOTATION,
    api_names.IN_TREE_AUTOSCALING_ANNOTATION,
    kueue.REPLICA_SIZES_ANNOTATION,
    kueue.RAYCLUSTER_GENERATION_ANNOTATION,
)
_LIFETIME_FIELDS = ("ttlSecondsAfterFinished", "deletionStrategy", "deletionPolicy")
"""What makes a controller delete a job after its end. The first is of Jobs and RayJobs, the others are KubeRay's."""
_LABEL_LENGTH, _HASH_LENGTH = 63, 8
MOST_PODS = 100_000
"""The most pods of a pod set. Kubernetes itself supports 150,000 in a cluster, and gated ones are as many objects."""
_MAX_POD_SETS = 18
"""Of a Workload's schema."""


def copy_of(job: Manifest, spec: Manifest) -> Manifest:
    """A job for a worker: the metadata that travels, and the spec without what only the manager's object has."""
    metadata, travelling = job["metadata"], _travelling_annotations(job)
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": _travelling_labels(metadata.get("labels", {})),
            "annotations": without(travelling, too_many(travelling)),
        },
        "spec": without(spec, ("managedBy", *_LIFETIME_FIELDS)),
    }


def left_out(job: Manifest) -> list[str]:
    """The annotations that a job's copy does not get: they would leave no room for slicebus' own."""
    return too_many(_travelling_annotations(job))


def _travelling_annotations(job: Manifest) -> Manifest:
    return without(job["metadata"].get("annotations") or {}, _DROPPED_ANNOTATIONS)


def without(mapping: Manifest, names: Iterable[str]) -> Manifest:
    """A copy without some keys."""
    dropped = set(names)
    return {name: value for name, value in mapping.items() if name not in dropped}


def dns_label(name: str) -> str:
    """A name as that of a pod set: lower case, DNS characters only, and never empty. One that has no such character
    becomes a hash."""
    label = re.sub(r"[^a-z0-9-]", "-", name.lower())[:_LABEL_LENGTH].strip("-")
    return label or f"pods-{content_hash(name)[:_HASH_LENGTH]}"


def with_containers(template: Manifest, added: list[Manifest]) -> Manifest:
    """A template with further containers."""
    spec = template["spec"]
    return template | {"spec": spec | {"containers": [*spec["containers"], *added]}} if added else template


def gated_template(template: Manifest, pod_set: str, placement: Placement) -> Manifest:
    """A pod template whose pods wait for their slice, and then run where the flavor says.

    The flavor's node labels win over the template's: the quota was given for that flavor. Its metadata has labels and
    annotations only: controllers give a pod the finalizers of its template too.
    """
    metadata, spec = template.get("metadata") or {}, template["spec"]
    gates = [gate for gate in spec.get("schedulingGates", ()) if gate["name"] != kueue.ELASTIC_GATE]
    own = spec.get("tolerations") or []
    changed = spec | {"schedulingGates": [*gates, {"name": kueue.ELASTIC_GATE}]}
    if placement.node_selector:
        changed["nodeSelector"] = spec.get("nodeSelector", {}) | placement.node_selector
    if placement.tolerations:
        changed["tolerations"] = [*own, *(t for t in placement.tolerations if t not in own)]
    if placement.resources != container_resources(spec):
        changed |= with_container_resources(spec, placement.resources)
    labels = pod_labels(metadata.get("labels") or {}) | placement.labels | {kueue.POD_SET_LABEL: pod_set}
    pod_metadata = {"labels": labels}
    if metadata.get("annotations"):
        pod_metadata["annotations"] = without(metadata["annotations"], api_names.AGENTS_OWN)
    return placement.scheduling.applied_to(template | {"metadata": pod_metadata, "spec": changed})


def pod_labels(labels: Manifest) -> Manifest:
    """A job's labels for its pods, without those that have a meaning to an agent or to a Kueue on the worker. KubeRay
    gives its pods the type of their node itself; one of another kind would start without a grant by it."""
    return without(_travelling_labels(labels), (kueue.POD_SET_LABEL, NODE_TYPE_LABEL))


def _travelling_labels(labels: Manifest) -> Manifest:
    kept = without(labels, _DROPPED_LABELS)
    return {name: value for name, value in kept.items() if not name.startswith(api_names.OWNER_LABEL_PREFIX)}


def common_problems(job: Manifest, pod_sets: list[Manifest]) -> list[Problem]:
    """Why no kind can take a job: partial admission, pod sets that no Workload can have, too many pods."""
    problems = []
    if is_too_deep(job.get("spec")):
        text = f"its spec is nested deeper than {MOST_LEVELS} levels, and no message of slicebus takes so many"
        problems.append(Problem("TooDeep", text))
    notes = job["metadata"].get("annotations", {})
    if kueue.MIN_PARALLELISM_ANNOTATION in notes and notes.get(kueue.PARTIAL_PREEMPTION_ANNOTATION) != "true":
        text = (
            f"annotation {kueue.MIN_PARALLELISM_ANNOTATION} (partial admission) cannot be used together with "
            f"{kueue.ELASTIC_ANNOTATION}: remove one of them"
        )
        problems.append(Problem("PartialAdmissionNotSupported", text))
    if len(pod_sets) > _MAX_POD_SETS:
        problems.append(
            Problem("TooManyPodSets", f"a job has at most {_MAX_POD_SETS} pod sets, this one {len(pod_sets)}")
        )
    names = [pod_set["name"] for pod_set in pod_sets]
    if len(set(names)) < len(names):
        problems.append(Problem("DuplicatePodSets", f"two pod sets have the same name: {', '.join(sorted(names))}"))
    for pod_set in pod_sets:
        if problem := misfit(pod_set["template"], TemplateShape):
            problems.append(Problem(INVALID_POD_TEMPLATE, f"pod set {pod_set['name']}: {problem}"))
            continue
        if (count := pod_set.get("count", 1)) > MOST_PODS:
            text = f"pod set {pod_set['name']}: {count} pods, and a worker's controller would make all of them: at most"
            problems.append(Problem("TooManyPods", f"{text} {MOST_PODS}"))
        if "minCount" in pod_set:
            problems.append(Problem("PartialAdmissionNotSupported", f"pod set {pod_set['name']}: minCount is set"))
        try:
            pod_requests(pod_set["template"].get("spec", {}))
        except ValueError as error:
            problems.append(Problem("InvalidQuantity", f"pod set {pod_set['name']}: {error}"))
    return problems
