"""ray.io/v1 RayJob: a RayCluster of its own, and a submitter."""

from typing import Any

import msgspec

from slicebus.proto.messages import Counts, JobPhase
from slicebus.slices import own_api
from slicebus.slices.jobs import ray
from slicebus.slices.jobs.base import Exposure, Outcome, Placement, Problem, Refusal
from slicebus.slices.jobs.batch import JOB_NAME_LABEL
from slicebus.slices.jobs.copies import common_problems, copy_of, gated_template, without
from slicebus.slices.jobs.ray_validation import rayjob_problems
from slicebus.slices.jobs.raycluster import CLUSTER_LABEL, RayCluster
from slicebus.slices.resource import Resource

Manifest = dict[str, Any]

_SUBMITTER = "submitter"
_ORIGIN_NAME = "ray.io/originated-from-cr-name"
_ORIGIN_KIND = "ray.io/originated-from-crd"
_SUBMITTER_RESOURCES = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
"""What KubeRay gives a submitter without a template (`GetDefaultSubmitterTemplate`)."""
_PHASES = {"SUCCEEDED": JobPhase.SUCCEEDED, "FAILED": JobPhase.FAILED, "STOPPED": JobPhase.FAILED}


class RayJob:
    """A RayJob has its cluster's pod sets, and one for the submitter in K8sJobMode.

    On a worker the counts are those of the child RayCluster: edits of the RayJob's own cluster spec are disregarded.
    """

    resource = Resource("ray.io", "v1", "rayjobs", "RayJob")
    # The submitter is a Job that has the RayJob's name.
    owner_labels: tuple[str, ...] = (own_api.RAYJOB_LABEL, JOB_NAME_LABEL)
    child_kind = RayCluster.resource.kind
    refusal = Refusal(conditions=False)
    # KubeRay then shuts down the cluster at once, and keeps the RayJob.
    standing_ttl_s: int | None = 0

    def pod_sets(self, job: Manifest) -> list[Manifest]:
        """The head, the groups, the submitter."""
        spec = job["spec"]
        beside_head = (_submitter_container(spec),) if _mode(spec) == "SidecarMode" else ()
        pod_sets = ray.cluster_pod_sets(spec["rayClusterSpec"], beside_head=beside_head)
        if _has_submitter_pod(spec):
            pod_sets.append({"name": _SUBMITTER, "count": 1, "template": _submitter_template(spec)})
        return pod_sets

    def counts(self, job: Manifest, scale_target: Manifest) -> Counts:
        """Pods of the cluster as KubeRay will make them, and the submitter."""
        spec = scale_target["spec"]
        cluster_spec = spec if scale_target["kind"] == self.child_kind else spec["rayClusterSpec"]
        submitter = {_SUBMITTER: 1} if _has_submitter_pod(job["spec"]) else {}
        return ray.cluster_counts(cluster_spec) | submitter

    def finished(self, job: Manifest) -> Counts:
        """None: its pods run until it ends."""
        return {}

    def succeeded(self, status: Manifest) -> Counts:
        """None: its pods run until it ends."""
        return {}

    def problems(self, job: Manifest) -> list[Problem]:
        """What KubeRay on the worker would refuse, said here and now."""
        return rayjob_problems(job) or common_problems(job, self.pod_sets(job))

    def worker_copy(self, job: Manifest, placements: dict[str, Placement]) -> Manifest:
        """The job with gated templates, the submitter's among them, whose pods name it.

        It runs on a cluster of its own. With `shutdownAfterJobFinishes` KubeRay deletes that cluster at once after the
        end, and keeps the RayJob; without it, KubeRay suspends no RayJob. The end is told when the cluster's pods have
        gone.
        """
        of = {own_api.RAYJOB_LABEL: job["metadata"]["name"]}
        names = [pod_set["name"] for pod_set in self.pod_sets(job)]
        given = {name: placements.get(name, Placement()) for name in names}
        placements = {name: msgspec.structs.replace(place, labels=place.labels | of) for name, place in given.items()}
        changed: Manifest = {
            "rayClusterSpec": ray.gated_cluster(job["spec"]["rayClusterSpec"], placements),
            "shutdownAfterJobFinishes": True,
        }
        if _has_submitter_pod(job["spec"]):
            template = _submitter_template(job["spec"])
            placement = placements[_SUBMITTER]
            changed["submitterPodTemplate"] = gated_template(template, _SUBMITTER, placement)
        return copy_of(job, without(job["spec"], ("suspend", "clusterSelector")) | changed)

    def exposure(self, job: Manifest) -> Exposure:
        """By its cluster's head."""
        return ray.head_exposure(job["spec"]["rayClusterSpec"])

    def resize(self, scale_target: Manifest, counts: Counts) -> list[Manifest]:
        """Other replicas: of the child, or of the child that a suspended RayJob will have."""
        if scale_target["kind"] == self.resource.kind:
            cluster_spec, is_suspended = scale_target["spec"]["rayClusterSpec"], scale_target["spec"].get("suspend")
            return ray.resize_groups(cluster_spec, counts, at="/spec/rayClusterSpec") if is_suspended else []
        return ray.resize_groups(scale_target["spec"], counts) if ray.is_resizable(scale_target["spec"]) else []

    def with_counts(self, job: Manifest, counts: Counts) -> Manifest:
        """Other replicas in its cluster's spec."""
        cluster_spec = ray.with_replicas(job["spec"]["rayClusterSpec"], counts)
        return job | {"spec": job["spec"] | {"rayClusterSpec": cluster_spec}}

    def autoscaled(self, job: Manifest) -> Manifest:
        """With in-tree autoscaling of its cluster, where it has one of its own."""
        cluster_spec = job["spec"].get("rayClusterSpec")
        if not cluster_spec:
            return job
        return job | {"spec": job["spec"] | {"rayClusterSpec": cluster_spec | {"enableInTreeAutoscaling": True}}}

    def mirrored_status(self, job: Manifest, reported: Manifest) -> Manifest:
        """The worker's."""
        return reported

    def running_status(self, reported: Manifest) -> Manifest:
        """A RayJob is active unless its deployment is new or suspended."""
        deployment = reported.get("jobDeploymentStatus") or "Initializing"
        return reported | {"jobDeploymentStatus": "Initializing" if deployment == "Suspended" else deployment}

    def suspended_status(self, status: Manifest, *, active: bool, now: str) -> Manifest:
        """It is, as soon as it is not active."""
        return status if active else {"jobDeploymentStatus": "Suspended"}

    def outcome(self, job: Manifest) -> Outcome:
        """By the job's status, once the deployment is over; a deployment that failed has none."""
        status = job.get("status", {})
        deployment, message = status.get("jobDeploymentStatus"), status.get("message", "")
        if deployment in ("Failed", "ValidationFailed"):
            return Outcome(JobPhase.FAILED, message)
        if deployment == "Complete":
            return Outcome(_PHASES.get(status.get("jobStatus", ""), JobPhase.RUNNING), message)
        return Outcome(JobPhase.RUNNING, message)

    def child(self, job: Manifest) -> str | None:
        """The RayCluster that KubeRay made for the job; a name that is not there yet is empty."""
        name: str = job.get("status", {}).get("rayClusterName", "")
        return name

    def made_by(self, child: Manifest) -> str:
        """By the labels that KubeRay sets on the RayCluster."""
        labels = child["metadata"].get("labels", {})
        name: str = labels.get(_ORIGIN_NAME, "") if labels.get(_ORIGIN_KIND) == self.resource.kind else ""
        return name

    def pod_selectors(self, job: Manifest) -> list[dict[str, str]]:
        """The child's pods, and those of the submitter Job, which has the RayJob's name.

        While it is suspended its status names no child any more, and only our own label tells of the pods left.
        """
        name = job["metadata"]["name"]
        selectors = [{JOB_NAME_LABEL: name}, {own_api.RAYJOB_LABEL: name}]
        if child := self.child(job):
            selectors.append({CLUSTER_LABEL: child})
        return selectors

    def replica_size(self, scale_target: Manifest, pod_set: str) -> int:
        """The group's numOfHosts."""
        spec = scale_target["spec"]
        return ray.replica_size(spec if scale_target["kind"] == self.child_kind else spec["rayClusterSpec"], pod_set)

    def named_for_deletion(self, scale_target: Manifest) -> frozenset[str]:
        """Those that the autoscaler has named on the child: a RayJob's own list is no order."""
        is_child = scale_target["kind"] == self.child_kind
        return ray.named_for_deletion(scale_target["spec"]) if is_child else frozenset()

    def bounds(self, job: Manifest) -> Manifest:
        """Those of its cluster."""
        return ray.bounds(job["spec"].get("rayClusterSpec") or {})

    def set_bounds(self, target: Manifest, bounds: Manifest) -> list[Manifest]:
        """In the child's spec, or in that of the children that follow."""
        if target["kind"] == self.child_kind:
            return ray.set_bounds(target["spec"], bounds)
        return ray.set_bounds(target["spec"].get("rayClusterSpec") or {}, bounds, at="/spec/rayClusterSpec")

    def is_autoscaled(self, scale_target: Manifest) -> bool:
        """Where it is on in its cluster."""
        spec = scale_target["spec"]
        return ray.autoscales(spec if scale_target["kind"] == self.child_kind else spec.get("rayClusterSpec") or {})

    def scaler(self, scale_target: Manifest) -> str:
        """The autoscaler, where it is on."""
        spec = scale_target["spec"].get("rayClusterSpec", scale_target["spec"])
        return "ray autoscaler" if ray.autoscales(spec) else "replicas changed"


def _mode(spec: Manifest) -> str:
    return str(spec.get("submissionMode") or "K8sJobMode")


def _has_submitter_pod(spec: Manifest) -> bool:
    return _mode(spec) == "K8sJobMode"


def _submitter_container(spec: Manifest) -> Manifest:
    image = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0].get("image", "")
    return {"name": "ray-job-submitter", "image": image, "resources": _SUBMITTER_RESOURCES}


def _submitter_template(spec: Manifest) -> Manifest:
    own: Manifest | None = spec.get("submitterPodTemplate")
    return own or {"spec": {"restartPolicy": "Never", "containers": [_submitter_container(spec)]}}
