"""Holds what RayJob and RayService share: KubeRay makes RayClusters of them, whose specs then have the counts."""

from collections.abc import Mapping, Sequence
from typing import Any

from slicebus.proto.messages import Counts
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs import ray, ray_caps
from slicebus.slices.jobs.base import Exposure, lacks_managed_by
from slicebus.slices.jobs.copies import PARENT_KIND, PARENT_NAME
from slicebus.slices.jobs.plain import PlainKind
from slicebus.slices.jobs.raycluster import RayCluster

Manifest = dict[str, Any]


class RayParent(PlainKind):
    """A job with RayClusters of its own. Edits of its cluster's spec change none that runs."""

    resource: Resource
    cluster_field: str
    """Where its spec has the spec of its clusters."""
    child_kind = RayCluster.resource.kind
    pod_owners: frozenset[str] | None = frozenset()

    def cluster_spec(self, manifest: Manifest) -> Manifest:
        """The cluster's spec of a job, or of one of its clusters; `NO_CLUSTER` where a job has none."""
        spec: Manifest = manifest["spec"]
        return spec if manifest["kind"] == self.child_kind else spec.get(self.cluster_field) or ray.NO_CLUSTER

    def lacks_dispatch(self, job: Manifest) -> str:
        """It needs a `managedBy` for slicebus."""
        return lacks_managed_by(job)

    def templates(self, job: Manifest, scale_target: Manifest) -> dict[str, Manifest]:
        """Those of its cluster."""
        return ray.templates(self.cluster_spec(scale_target))

    def most(self, job: Manifest) -> Counts:
        """Those of its cluster."""
        return ray.most(self.cluster_spec(job))

    def pod_set_of(self, labels: dict[str, str]) -> str:
        """Read the labels that KubeRay sets."""
        return ray.pod_set_of(labels)

    def exposure(self, job: Manifest) -> Exposure:
        """Its cluster's head is reachable."""
        return ray.head_exposure(self.cluster_spec(job), name=job["metadata"]["name"])

    def resize(self, scale_target: Manifest, counts: Counts) -> list[Manifest]:
        """Patch the replicas of a child, or of the child that a suspended job will have."""
        spec = self.cluster_spec(scale_target)
        if scale_target["kind"] == self.child_kind:
            return ray.resize_groups(spec, counts) if ray.is_resizable(spec) else []
        return ray.resize_groups(spec, counts, at=self._at) if scale_target["spec"].get("suspend") else []

    def follow(self, scale_target: Manifest, job: Manifest) -> list[list[Manifest]]:
        """The replicas of its groups."""
        patch = self.resize(scale_target, ray.counts_there(self.cluster_spec(scale_target), self.cluster_spec(job)))
        return [patch] if patch else []

    def follow_next(self, job: Manifest, wanted: Manifest) -> list[Manifest]:
        """The replicas of the groups in its cluster's spec."""
        spec = self.cluster_spec(job)
        return ray.resize_groups(spec, ray.counts_there(spec, self.cluster_spec(wanted)), at=self._at)

    def with_counts(self, job: Manifest, counts: Counts) -> Manifest:
        """Set the replicas in its cluster's spec."""
        return self._with_cluster(job, ray.with_replicas(self.cluster_spec(job), counts))

    def autoscaled(self, job: Manifest) -> Manifest:
        """Turn on in-tree autoscaling of its cluster, where it has one of its own."""
        return self._with_cluster(job, self.cluster_spec(job) | {"enableInTreeAutoscaling": True})

    def mirrored_status(self, job: Manifest, reported: Manifest) -> Manifest:
        """The worker's status."""
        return reported

    def made_by(self, child: Manifest) -> str:
        """Read the labels that KubeRay sets on the RayCluster."""
        labels = child["metadata"].get("labels", {})
        name: str = labels.get(PARENT_NAME, "") if labels.get(PARENT_KIND) == self.resource.kind else ""
        return name

    def replica_size(self, scale_target: Manifest, pod_set: str) -> int:
        """The group's numOfHosts."""
        return ray.replica_size(self.cluster_spec(scale_target), pod_set)

    def replica(self, labels: dict[str, str], owner_uid: str) -> tuple[str, str]:
        """Read the name that KubeRay gives the replica of a multi-host group, within a cluster."""
        return ray.replica(labels, owner_uid)

    def named_for_deletion(self, scale_target: Manifest) -> frozenset[str]:
        """The pods that the autoscaler has named on a child: a list of the job's own is no order."""
        is_child = scale_target["kind"] == self.child_kind
        return ray.named_for_deletion(scale_target["spec"]) if is_child else frozenset()

    def name_for_deletion(self, scale_target: Manifest, names: Mapping[str, Sequence[str]]) -> list[Manifest]:
        """Name them on a child, as the autoscaler does."""
        is_child = scale_target["kind"] == self.child_kind
        return ray.name_for_deletion(scale_target["spec"], names) if is_child else []

    def cap(self, scale_target: Manifest, counts: Counts | None) -> list[Manifest]:
        """Those of a child: the clusters that follow have no cap."""
        return ray_caps.cap(scale_target, counts) if scale_target["kind"] == self.child_kind else []

    def is_capped(self, scale_target: Manifest) -> bool:
        """By the note on a child."""
        return scale_target["kind"] == self.child_kind and ray_caps.is_capped(scale_target)

    def enforce_cap(self, scale_target: Manifest, names: Mapping[str, Sequence[str]]) -> list[Manifest]:
        """On a child, as the autoscaler would write it."""
        return ray_caps.enforce(scale_target, names) if scale_target["kind"] == self.child_kind else []

    def least(self, job: Manifest) -> Counts:
        """Those of its cluster."""
        return ray.least(self.cluster_spec(job))

    def bounds(self, job: Manifest) -> Manifest:
        """The bounds of its cluster."""
        return ray.bounds(self.cluster_spec(job))

    def set_bounds(self, target: Manifest, bounds: Manifest) -> list[Manifest]:
        """Patch them in a child's spec, beside its caps, or in that of the children that follow."""
        if target["kind"] == self.child_kind:
            return ray_caps.set_bounds(target, bounds)
        return ray.set_bounds(self.cluster_spec(target), bounds, at=self._at)

    def is_autoscaled(self, scale_target: Manifest) -> bool:
        """Whether the autoscaler is on in its cluster."""
        return ray.autoscales(self.cluster_spec(scale_target))

    def is_upgrade(self, counts: Counts) -> bool:
        """Whether there is a second head."""
        return counts.get(ray.HEAD, 0) > 1

    def scaler(self, scale_target: Manifest) -> str:
        """The autoscaler changes the counts where it is on, else its user."""
        return "ray autoscaler" if ray.autoscales(self.cluster_spec(scale_target)) else "replicas changed"

    @property
    def _at(self) -> str:
        return f"/spec/{self.cluster_field}"

    def _with_cluster(self, job: Manifest, cluster_spec: Manifest) -> Manifest:
        """The job with another spec of its cluster; unchanged where it has no cluster of its own."""
        if not job["spec"].get(self.cluster_field):
            return job
        return job | {"spec": job["spec"] | {self.cluster_field: cluster_spec}}
