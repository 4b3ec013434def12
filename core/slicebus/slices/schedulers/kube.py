"""Makes gangs for kube-scheduler itself: `scheduling.k8s.io` Workload and PodGroup, alpha since Kubernetes 1.35.

Both are fixed once they are made, and a PodGroup stays as long as an active pod names it. So each pod set has a pair of
its own, which is replaced only when it has no pods. Since `v1beta1` the `minCount` of a PodGroup can be changed.
"""

from typing import Any

from slicebus.proto.messages import Counts
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.base import Problem
from slicebus.slices.jobs.ray import pod_set_name
from slicebus.slices.schedulers.base import Gang, Profile, SchedulingObject, Synced, is_late, object_name
from slicebus.slices.workload.pod_scheduling import PodScheduling

Manifest = dict[str, Any]

_GROUP = "scheduling.k8s.io"
_KUBERAYS_OWN = ("ray.io/gang-scheduling-enabled", "ray.io/scheduler-name")
_ALPHA = "v1alpha2"
VERSIONS = ("v1beta1", _ALPHA)
"""The newest first. Kubernetes 1.36 serves the last one only, and 1.37 the first."""


def workloads(version: str) -> Resource:
    """The resource of Kubernetes' own Workloads, in a version."""
    return Resource(_GROUP, version, "workloads", "Workload")


def pod_groups(version: str) -> Resource:
    """The resource of Kubernetes' own PodGroups, in a version."""
    return Resource(_GROUP, version, "podgroups", "PodGroup")


def kuberay_problems(job: Manifest) -> list[Problem]:
    """Why a job that KubeRay itself schedules as a gang cannot have a backend's objects too."""
    labels = job["metadata"].get("labels") or {}
    return [
        Problem("GangSchedulingByKubeRay", f"KubeRay makes a PodGroup of its own for the label {label}: remove it")
        for label in _KUBERAYS_OWN
        if label in labels
    ]


class Kube:
    """kube-scheduler gets a gang for each pod set of a Ray cluster, and the basic policy for a Job.

    Kubernetes refuses to resize a Job whose template names a gang (`cannot change parallelism for a Job referencing
    gang-scheduled PodGroup`). With a PodGroup of ours its controller makes no pair of its own (`WorkloadWithJob`).
    """

    name = "kube"
    reads: tuple[Resource, ...] = ()
    writes_status = False

    def __init__(self, profile: Profile, version: str = VERSIONS[-1]) -> None:
        self._profile = profile
        self._version = version
        self.makes: tuple[Resource, ...] = (workloads(version), pod_groups(version))

    def validate(self, job: Manifest) -> list[Problem]:
        """Jobs that KubeRay itself schedules as gangs are refused."""
        return kuberay_problems(job)

    def prepare(self, job: Manifest, pod_set: str) -> PodScheduling:
        """The name of the pod set's PodGroup."""
        group = "" if is_late(job, pod_set) else object_name(job, pod_set)
        return PodScheduling(scheduler_name=self._profile.scheduler_name, pod_group=group)

    def sync(self, gang: Gang) -> Synced:
        """A Workload and a PodGroup for each pod set with pods."""
        together, objects = _together(gang), list[SchedulingObject]()
        for pod_set in gang.minimum:
            least = together.get(pod_set)
            objects += self._pair(gang.job, pod_set, {"gang": {"minCount": least}} if least else {"basic": {}})
        stuck = next(filter(None, (self._too_large(gang, pod_set) for pod_set in together)), None)
        minimum = {pod_set: self._made_for(gang, pod_set) or least for pod_set, least in together.items()}
        return Synced(objects=tuple(objects), minimum=minimum, together=together, stuck=stuck)

    def _made_for(self, gang: Gang, pod_set: str) -> int:
        """The minimum of a PodGroup that is there and cannot be changed; 0 for none."""
        present = gang.find(pod_groups(self._version), object_name(gang.job, pod_set))
        if present is None or self._version != _ALPHA:
            return 0
        policy: Manifest = present.get("spec", {}).get("schedulingPolicy") or {}
        least: int = (policy.get("gang") or {}).get("minCount", 0)
        return least

    def _too_large(self, gang: Gang, pod_set: str) -> Problem | None:
        """The problem of a gang that has shrunk and cannot be changed: the scheduler keeps its first minimum."""
        name, granted = object_name(gang.job, pod_set), gang.granted.get(pod_set, 0)
        least = self._made_for(gang, pod_set)
        if least <= granted or pod_set not in gang.unplaced:
            return None
        message = f"PodGroup {name} ({_GROUP}) was made for {least} pods and cannot be changed, {granted} are granted"
        return Problem("GangTooLarge", f"{message}: a pod that is made anew waits until as many are there")

    def _pair(self, job: Manifest, pod_set: str, policy: Manifest) -> list[SchedulingObject]:
        name, version = object_name(job, pod_set), self._version
        group, _, _ = job["apiVersion"].rpartition("/")
        controller = {"apiGroup": group, "kind": job["kind"], "name": job["metadata"]["name"]}
        template = {"name": pod_set, "schedulingPolicy": policy}
        workload = {"controllerRef": controller, "podGroupTemplates": [template]}
        pod_group, is_fixed = _reference(version, name, pod_set) | {"schedulingPolicy": policy}, version == _ALPHA
        return [
            SchedulingObject(resource=resource, name=name, spec=spec, pod_set=pod_set, is_fixed=fixed)
            for resource, spec, fixed in (
                (workloads(version), workload, True),
                (pod_groups(version), pod_group, is_fixed),
            )
        ]


def _reference(version: str, workload: str, template: str) -> Manifest:
    """The reference from a PodGroup to the template that it is made of."""
    if version == _ALPHA:
        return {"podGroupTemplateRef": {"workload": {"workloadName": workload, "podGroupTemplateName": template}}}
    return {"workloadRef": {"workloadName": workload, "templateName": template}}


def _together(gang: Gang) -> Counts:
    """How many pods of each pod set are a gang; empty for a Job.

    A gang never gets smaller while it has pods. A group that Ray's autoscaler may shrink has a gang of its
    `minReplicas`, or else a new pod would wait for ever.
    """
    kind = KINDS[gang.job["kind"]]
    if kind.resource.kind == "Job":
        return {}
    groups: Manifest = kind.bounds(gang.job).get("groups", {}) if kind.is_autoscaled(gang.job) else {}
    bounds = {pod_set_name({"groupName": name}): group.get("minReplicas") or 0 for name, group in groups.items()}
    return {
        name: max(1, min(count, bounds[name] * kind.replica_size(gang.job, name))) if name in bounds else count
        for name, count in gang.minimum.items()
    }
