"""Describes the kind ray.io/v1 RayCluster."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from slicebus.proto.messages import Counts, JobPhase
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs import ray, ray_caps
from slicebus.slices.jobs.base import SUSPEND_PATH, Exposure, Outcome, Placement, Problem, lacks_managed_by
from slicebus.slices.jobs.copies import common_problems, copy_of
from slicebus.slices.jobs.paths import Path
from slicebus.slices.jobs.plain import PlainKind
from slicebus.slices.jobs.ray_validation import cluster_problems
from slicebus.slices.jobs.shapes import RayClusterSpec, RayClusterStatus

Manifest = dict[str, Any]

CLUSTER_LABEL = "ray.io/cluster"
"""KubeRay sets it on the pods of a RayCluster."""


class RayCluster(PlainKind):
    """A RayCluster has a pod set for the head and one for each worker group."""

    resource = Resource("ray.io", "v1", "rayclusters", "RayCluster")
    owner_labels: tuple[str, ...] = (CLUSTER_LABEL,)
    pod_owners: frozenset[str] | None = frozenset()
    suspend_path: Path | None = SUSPEND_PATH
    spec_shape: type[msgspec.Struct] = RayClusterSpec
    status_shape: type[msgspec.Struct] = RayClusterStatus

    def lacks_dispatch(self, job: Manifest) -> str:
        """It needs a `managedBy` for slicebus."""
        return lacks_managed_by(job)

    def pod_sets(self, job: Manifest) -> list[Manifest]:
        """The head, then the groups."""
        return ray.cluster_pod_sets(job["spec"])

    def templates(self, job: Manifest, scale_target: Manifest) -> dict[str, Manifest]:
        """The head's, and those of the groups."""
        return ray.templates(scale_target["spec"])

    def most(self, job: Manifest) -> Counts:
        """The head, and the `maxReplicas` of each group."""
        return ray.most(job["spec"])

    def pod_set_of(self, labels: dict[str, str]) -> str:
        """Read the labels that KubeRay sets."""
        return ray.pod_set_of(labels)

    def counts(self, job: Manifest, scale_target: Manifest) -> Counts:
        """The pods that KubeRay will make."""
        return ray.cluster_counts(scale_target["spec"])

    def problems(self, job: Manifest) -> list[Problem]:
        """What KubeRay on the worker would refuse, else what no kind can take."""
        return cluster_problems(job) or common_problems(job, self.pod_sets(job))

    def worker_copy(self, job: Manifest, placements: dict[str, Placement]) -> Manifest:
        """The cluster with gated templates."""
        return copy_of(job, ray.gated_cluster(job["spec"], placements))

    def exposure(self, job: Manifest) -> Exposure:
        """The head is reachable by its Service and its Ingress."""
        return ray.head_exposure(job["spec"], name=job["metadata"]["name"])

    def resize(self, scale_target: Manifest, counts: Counts) -> list[Manifest]:
        """Patch the replicas, unless the autoscaler owns them."""
        return ray.resize_groups(scale_target["spec"], counts) if ray.is_resizable(scale_target["spec"]) else []

    def follow(self, scale_target: Manifest, job: Manifest) -> list[list[Manifest]]:
        """The replicas of its groups."""
        patch = self.resize(scale_target, ray.counts_there(scale_target["spec"], job["spec"]))
        return [patch] if patch else []

    def with_counts(self, job: Manifest, counts: Counts) -> Manifest:
        """Set the replicas."""
        return job | {"spec": ray.with_replicas(job["spec"], counts)}

    def autoscaled(self, job: Manifest) -> Manifest:
        """Turn on in-tree autoscaling."""
        return job | {"spec": job["spec"] | {"enableInTreeAutoscaling": True}}

    def ready(self, status: Manifest) -> int | None:
        """Its workers, and its head."""
        return ray.ready_pods(status)

    def mirrored_status(self, job: Manifest, reported: Manifest) -> Manifest:
        """The worker's status."""
        return reported

    def running_status(self, reported: Manifest) -> Manifest:
        """A RayCluster is active while its state is ready. Its conditions tell more."""
        return reported | {"state": "ready"}

    def suspended_status(self, status: Manifest, *, active: bool, now: str) -> Manifest:
        """Its state is suspended, as soon as it is not active."""
        return status if active else {"state": "suspended"}

    def outcome(self, job: Manifest) -> Outcome:
        """A cluster runs until it is deleted. The message says what is wrong with it."""
        status = job.get("status", {})
        failed = status.get("state") == "failed"
        return Outcome(JobPhase.RUNNING, status.get("reason", "") if failed else "")

    def pod_selectors(self, job: Manifest) -> list[dict[str, str]]:
        """The label that KubeRay sets."""
        return [{CLUSTER_LABEL: job["metadata"]["name"]}]

    def replica_size(self, scale_target: Manifest, pod_set: str) -> int:
        """The group's numOfHosts."""
        return ray.replica_size(scale_target["spec"], pod_set)

    def replica(self, labels: dict[str, str], owner_uid: str) -> tuple[str, str]:
        """Read the name that KubeRay gives the replica of a multi-host group, within a cluster."""
        return ray.replica(labels, owner_uid)

    def named_for_deletion(self, scale_target: Manifest) -> frozenset[str]:
        """The pods that the autoscaler has named."""
        return ray.named_for_deletion(scale_target["spec"])

    def name_for_deletion(self, scale_target: Manifest, names: Mapping[str, Sequence[str]]) -> list[Manifest]:
        """Name them as the autoscaler does."""
        return ray.name_for_deletion(scale_target["spec"], names)

    def cap(self, scale_target: Manifest, counts: Counts | None) -> list[Manifest]:
        """By the maxReplicas of its groups."""
        return ray_caps.cap(scale_target, counts)

    def is_capped(self, scale_target: Manifest) -> bool:
        """By the note beside it."""
        return ray_caps.is_capped(scale_target)

    def enforce_cap(self, scale_target: Manifest, names: Mapping[str, Sequence[str]]) -> list[Manifest]:
        """As the autoscaler would write it."""
        return ray_caps.enforce(scale_target, names)

    def least(self, job: Manifest) -> Counts:
        """The minReplicas of each group."""
        return ray.least(job["spec"])

    def bounds(self, job: Manifest) -> Manifest:
        """The bounds of each group, and of the autoscaler."""
        return ray.bounds(job["spec"])

    def set_bounds(self, target: Manifest, bounds: Manifest) -> list[Manifest]:
        """Patch them in its spec, beside its caps."""
        return ray_caps.set_bounds(target, bounds)

    def is_autoscaled(self, scale_target: Manifest) -> bool:
        """Whether the autoscaler is on: KubeRay then takes no pod at random."""
        return ray.autoscales(scale_target["spec"])

    def scaler(self, scale_target: Manifest) -> str:
        """The autoscaler changes the counts where it is on, else its user."""
        return "ray autoscaler" if ray.autoscales(scale_target["spec"]) else "replicas changed"
