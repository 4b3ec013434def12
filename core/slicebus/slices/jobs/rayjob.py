"""Describes the kind ray.io/v1 RayJob: a RayCluster of its own, and a submitter."""

from collections.abc import Collection
from typing import Any

import msgspec

from slicebus.proto.messages import Counts, JobPhase
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import content_hash
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs import ray
from slicebus.slices.jobs.base import SUSPEND_PATH, Outcome, Placement, Problem, Refusal
from slicebus.slices.jobs.batch import JOB_NAME_LABEL
from slicebus.slices.jobs.copies import common_problems, copy_of, gated_template, without
from slicebus.slices.jobs.paths import Path
from slicebus.slices.jobs.ray_parent import RayParent
from slicebus.slices.jobs.ray_validation import rayjob_problems
from slicebus.slices.jobs.raycluster import CLUSTER_LABEL
from slicebus.slices.jobs.shapes import RayJobSpec, RayJobStatus

Manifest = dict[str, Any]

_SUBMITTER = "submitter"
_ID = "jobId"
_SUBMITTER_RESOURCES = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
"""What KubeRay gives a submitter without a template (`GetDefaultSubmitterTemplate`)."""
_PHASES = {"SUCCEEDED": JobPhase.SUCCEEDED, "FAILED": JobPhase.FAILED, "STOPPED": JobPhase.FAILED}


class RayJob(RayParent):
    """A RayJob has its cluster's pod sets, and one for the submitter in K8sJobMode.

    On a worker the counts are those of the child RayCluster: edits of the RayJob's own cluster spec are disregarded.
    """

    resource = Resource("ray.io", "v1", "rayjobs", "RayJob")
    # The submitter is a Job that has the RayJob's name.
    owner_labels: tuple[str, ...] = (api_names.RAYJOB_LABEL, JOB_NAME_LABEL)
    cluster_field = "rayClusterSpec"
    # The submitter's is a Job.
    pod_owners: frozenset[str] | None = frozenset({"Job"})
    refusal = Refusal(conditions=False)
    # KubeRay then shuts down the cluster at once, and keeps the RayJob.
    suspend_path: Path | None = SUSPEND_PATH
    spec_shape: type[msgspec.Struct] = RayJobSpec
    status_shape: type[msgspec.Struct] = RayJobStatus

    def pod_sets(self, job: Manifest) -> list[Manifest]:
        """The head, the groups, then the submitter."""
        spec = job["spec"]
        beside_head = (_submitter_container(spec),) if _mode(spec) == "SidecarMode" else ()
        pod_sets = ray.cluster_pod_sets(self.cluster_spec(job), beside_head=beside_head)
        if _has_submitter_pod(spec):
            pod_sets.append({"name": _SUBMITTER, "count": 1, "template": _submitter_template(spec)})
        return pod_sets

    def templates(self, job: Manifest, scale_target: Manifest) -> dict[str, Manifest]:
        """Those of its cluster, and the submitter's where the job has one."""
        submitter = job["spec"].get("submitterPodTemplate") if _has_submitter_pod(job["spec"]) else None
        return super().templates(job, scale_target) | ({_SUBMITTER: submitter} if submitter else {})

    def most(self, job: Manifest) -> Counts:
        """Those of its cluster, and one submitter where the job has one: a group may have that name elsewhere."""
        return super().most(job) | ({_SUBMITTER: 1} if _has_submitter_pod(job["spec"]) else {})

    def late_pod_sets(self, job: Manifest) -> frozenset[str]:
        """The submitter's, where the job has one."""
        return frozenset({_SUBMITTER} if _has_submitter_pod(job["spec"]) else ())

    def counts(self, job: Manifest, scale_target: Manifest) -> Counts:
        """The pods of the cluster that KubeRay will make, and the submitter."""
        submitter = {_SUBMITTER: 1} if _has_submitter_pod(job["spec"]) else {}
        return ray.cluster_counts(self.cluster_spec(scale_target)) | submitter

    def problems(self, job: Manifest) -> list[Problem]:
        """What KubeRay on the worker would refuse, else what no kind can take."""
        return rayjob_problems(job) or common_problems(job, self.pod_sets(job))

    def worker_copy(self, job: Manifest, placements: dict[str, Placement]) -> Manifest:
        """The job with gated templates, also the submitter's. Their pods have the job's name as a label.

        It runs on a cluster of its own. With `shutdownAfterJobFinishes` KubeRay deletes that cluster at once after the
        end, and keeps the RayJob; without it, KubeRay suspends no RayJob. The end is told when the cluster's pods have
        gone.
        """
        owner_label = {api_names.RAYJOB_LABEL: job["metadata"]["name"]}
        places = {pod_set["name"]: placements.get(pod_set["name"], Placement()) for pod_set in self.pod_sets(job)}
        placements = {
            name: msgspec.structs.replace(place, labels=place.labels | owner_label) for name, place in places.items()
        }
        changed: Manifest = {
            "rayClusterSpec": ray.gated_cluster(self.cluster_spec(job), placements),
            "shutdownAfterJobFinishes": True,
        }
        if _has_submitter_pod(job["spec"]):
            template = _submitter_template(job["spec"])
            placement = placements[_SUBMITTER]
            changed["submitterPodTemplate"] = gated_template(template, _SUBMITTER, placement)
        return copy_of(job, without(job["spec"], ("suspend", "clusterSelector")) | changed)

    def bounds(self, job: Manifest) -> Manifest:
        """The bounds of its cluster, and in InteractiveMode the hash of the ID of the job that its user has submitted:
        KubeRay waits for that while the cluster runs."""
        spec = job["spec"]
        is_awaited = spec.get("submissionMode") == "InteractiveMode"
        return super().bounds(job) | ({"fields": {_ID: content_hash(spec.get(_ID) or "")}} if is_awaited else {})

    def take_over(self, job: Manifest, copy: Manifest, fields: Collection[str]) -> list[Manifest]:
        """Patch the ID. KubeRay does not let go of one that it has."""
        wanted = copy["spec"].get(_ID) if _ID in fields else None
        return [{"op": "add", "path": f"/spec/{_ID}", "value": wanted}] if wanted and not job["spec"].get(_ID) else []

    def retries(self, job: Manifest) -> bool:
        """KubeRay makes another cluster for each of its `backoffLimit`."""
        return bool(job["spec"].get("backoffLimit"))

    def running_status(self, reported: Manifest) -> Manifest:
        """A RayJob is active unless its deployment is new or suspended."""
        deployment = reported.get("jobDeploymentStatus") or "Initializing"
        return reported | {"jobDeploymentStatus": "Initializing" if deployment == "Suspended" else deployment}

    def suspended_status(self, status: Manifest, *, active: bool, now: str) -> Manifest:
        """Its deployment is suspended, as soon as it is not active."""
        return status if active else {"jobDeploymentStatus": "Suspended"}

    def ready(self, status: Manifest) -> int | None:
        """Those of its cluster. Of the submitter's pod its status says nothing."""
        return ray.ready_pods(status.get("rayClusterStatus") or {})

    def outcome(self, job: Manifest) -> Outcome:
        """Read the job's status once the deployment is over. A deployment that failed has none."""
        status = job.get("status", {})
        deployment, message = status.get("jobDeploymentStatus"), status.get("message", "")
        if deployment in ("Failed", "ValidationFailed"):
            return Outcome(JobPhase.FAILED, message)
        if deployment == "Complete":
            return Outcome(_PHASES.get(status.get("jobStatus", ""), JobPhase.RUNNING), message)
        return Outcome(JobPhase.RUNNING, message)

    def children(self, job: Manifest) -> list[str] | None:
        """The RayCluster that KubeRay made for the job; none before that."""
        name: str = job.get("status", {}).get("rayClusterName", "")
        return [name] if name else []

    def own_jobs(self, job: Manifest) -> list[str]:
        """The submitter's Job, which has the RayJob's name."""
        return [job["metadata"]["name"]] if _has_submitter_pod(job["spec"]) else []

    def pod_selectors(self, job: Manifest) -> list[dict[str, str]]:
        """The child's pods, and those of the submitter Job, which has the RayJob's name.

        While it is suspended its status names no child any more, and only our own label tells of the pods left.
        """
        name = job["metadata"]["name"]
        selectors = [{JOB_NAME_LABEL: name}, {api_names.RAYJOB_LABEL: name}]
        return selectors + [{CLUSTER_LABEL: child} for child in self.children(job) or ()]


def _mode(spec: Manifest) -> str:
    return str(spec.get("submissionMode") or "K8sJobMode")


def _has_submitter_pod(spec: Manifest) -> bool:
    return _mode(spec) == "K8sJobMode"


def _submitter_container(spec: Manifest) -> Manifest:
    image = ray.head_image(spec.get(RayJob.cluster_field) or ray.NO_CLUSTER)
    return {"name": "ray-job-submitter", "image": image, "resources": _SUBMITTER_RESOURCES}


def _submitter_template(spec: Manifest) -> Manifest:
    own: Manifest | None = spec.get("submitterPodTemplate")
    return own or {"spec": {"restartPolicy": "Never", "containers": [_submitter_container(spec)]}}
