"""Describes the kind ray.io/v1 RayService: a RayCluster that serves and, during an upgrade, a second one beside it."""

from collections.abc import Collection
from typing import Any

import msgspec

from slicebus.proto.messages import MOST_COUNT, Counts, JobPhase
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import content_hash
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs import ray
from slicebus.slices.jobs.base import SUSPEND_PATH, Exposure, Outcome, Placement, Problem
from slicebus.slices.jobs.copies import common_problems, copy_of, without
from slicebus.slices.jobs.paths import Path
from slicebus.slices.jobs.ray_parent import RayParent
from slicebus.slices.jobs.ray_validation import rayservice_problems
from slicebus.slices.jobs.raycluster import CLUSTER_LABEL
from slicebus.slices.jobs.shapes import RayServiceSpec, RayServiceStatus

Manifest = dict[str, Any]

_STATUSES = ("activeServiceStatus", "pendingServiceStatus")
_NOT_TAKEN = ("suspend", "managedBy")
_INCREMENTAL = "NewClusterWithIncrementalUpgrade"
"""The upgrade for which KubeRay makes a Gateway and routes."""
_NO_CLUSTERS: Manifest = {name: {} for name in _STATUSES}


class RayService(RayParent):
    """A RayService has its cluster's pod sets; it runs until it is deleted.

    On a worker its counts are those of the RayCluster that serves, and of the one that an upgrade prepares. Both are
    charged, and the second one's pods wait for the quota that it needs in addition. KubeRay prepares another cluster
    for every change of the cluster's spec but replicas and their bounds.
    """

    resource = Resource("ray.io", "v1", "rayservices", "RayService")
    cluster_field = "rayClusterConfig"
    owner_labels: tuple[str, ...] = (api_names.RAYSERVICE_LABEL,)
    suspend_path: Path | None = SUSPEND_PATH
    spec_shape: type[msgspec.Struct] = RayServiceSpec
    status_shape: type[msgspec.Struct] = RayServiceStatus

    def pod_sets(self, job: Manifest) -> list[Manifest]:
        """The head, then the groups, of one cluster."""
        return ray.cluster_pod_sets(self.cluster_spec(job))

    def counts(self, job: Manifest, scale_target: Manifest) -> Counts:
        """The pods of one cluster that KubeRay will make."""
        return ray.cluster_counts(self.cluster_spec(scale_target))

    def problems(self, job: Manifest) -> list[Problem]:
        """What KubeRay on the worker would refuse, else what no kind can take."""
        return rayservice_problems(job) or common_problems(job, self.pod_sets(job))

    def worker_copy(self, job: Manifest, placements: dict[str, Placement]) -> Manifest:
        """The service with gated templates. Their pods have the service's name as a label."""
        owner_label = {api_names.RAYSERVICE_LABEL: job["metadata"]["name"]}
        places = {pod_set["name"]: placements.get(pod_set["name"], Placement()) for pod_set in self.pod_sets(job)}
        placements = {
            name: msgspec.structs.replace(place, labels=place.labels | owner_label) for name, place in places.items()
        }
        changed = {self.cluster_field: ray.gated_cluster(self.cluster_spec(job), placements)}
        return copy_of(job, without(job["spec"], ("suspend",)) | changed)

    def most(self, job: Manifest) -> Counts:
        """Those of two clusters: an upgrade has both."""
        return {name: min(2 * count, MOST_COUNT) for name, count in super().most(job).items()}

    def exposure(self, job: Manifest) -> Exposure:
        """Its cluster's head is reachable, and its applications are by a Service that its user may shape."""
        head, service = super().exposure(job), job["spec"].get("serveService") or {}
        metadata, spec = service.get("metadata") or {}, service.get("spec") or {}
        strategy = job["spec"].get("upgradeStrategy") or {}
        given = ray.given_name(metadata, but=f"{job['metadata']['name']}-serve-svc")
        return msgspec.structs.replace(
            head,
            service_types=head.service_types | frozenset(filter(None, [spec.get("type")])),
            external_ips=head.external_ips or bool(spec.get("externalIPs")),
            gateway=strategy.get("type") == _INCREMENTAL,
            service_names=head.service_names | frozenset(given),
            labels=head.labels | (metadata.get("labels") or {}),
            annotations=head.annotations | (metadata.get("annotations") or {}),
        )

    def running_status(self, reported: Manifest) -> Manifest:
        """The worker's status: a Kueue looks only for what it has suspended itself."""
        return reported

    def suspended_status(self, status: Manifest, *, active: bool, now: str) -> Manifest:
        """It has no cluster, as soon as it is not active."""
        return status if active else _NO_CLUSTERS | {"serviceStatus": "", "numServeEndpoints": 0}

    def ready(self, status: Manifest) -> int | None:
        """Those of its clusters together: an upgrade has two."""
        clusters = [(status.get(name) or {}).get("rayClusterStatus") or {} for name in _STATUSES]
        counted = [count for cluster in clusters if (count := ray.ready_pods(cluster)) is not None]
        return sum(counted) if counted else None

    def outcome(self, job: Manifest) -> Outcome:
        """A service runs until it is deleted."""
        return Outcome(JobPhase.RUNNING)

    def children(self, job: Manifest) -> list[str] | None:
        """The RayCluster that serves, then the one that an upgrade, or the first start, prepares."""
        statuses = [job.get("status", {}).get(name) or {} for name in _STATUSES]
        return [status["rayClusterName"] for status in statuses if status.get("rayClusterName")]

    def pod_selectors(self, job: Manifest) -> list[dict[str, str]]:
        """Our own label, and KubeRay's label of its clusters. A cluster that served before has only ours."""
        own = {api_names.RAYSERVICE_LABEL: job["metadata"]["name"]}
        return [own, *({CLUSTER_LABEL: child} for child in self.children(job) or ())]

    def resize(self, scale_target: Manifest, counts: Counts) -> list[Manifest]:
        """Patch the replicas of a child, or of the clusters that follow: KubeRay prepares no other cluster for that."""
        if scale_target["kind"] == self.child_kind:
            return super().resize(scale_target, counts)
        spec = self.cluster_spec(scale_target)
        is_resizable = scale_target["spec"].get("suspend") or not ray.autoscales(spec)
        return ray.resize_groups(spec, counts, at=self._at) if is_resizable else []

    def bounds(self, job: Manifest) -> Manifest:
        """The ranges of its groups: for another idle time or mode KubeRay would prepare another cluster. And the hashes
        of the fields of its spec; its cluster's is without size and bounds."""
        spec = without(job["spec"], _NOT_TAKEN)
        spec |= {self.cluster_field: ray.without_sizes(self.cluster_spec(job))}
        fields = {"fields": {name: content_hash(value) for name, value in spec.items()}}
        return ray.bounds(self.cluster_spec(job), only_range=True) | fields

    def take_over(self, job: Manifest, copy: Manifest, fields: Collection[str]) -> list[Manifest]:
        """Patch the fields. For another spec KubeRay prepares another cluster, which begins at the size of the job."""
        present, sized = job["spec"], ray.with_sizes(self.cluster_spec(copy), source=self.cluster_spec(job))
        wanted = copy["spec"] | {self.cluster_field: sized}
        patch: list[Manifest] = []
        for name in sorted(fields):
            if name in wanted and wanted[name] != present.get(name):
                patch.append({"op": "add", "path": f"/spec/{name}", "value": wanted[name]})
            elif name not in wanted and name in present:
                patch.append({"op": "remove", "path": f"/spec/{name}"})
        return patch
