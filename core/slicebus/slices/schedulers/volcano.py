"""Makes a PodGroup of a job for Volcano 1.14 or later, with a subgroup policy for each pod set."""

from typing import Any

from slicebus.slices.api import kueue
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs.base import Problem
from slicebus.slices.schedulers.base import (
    Gang,
    Profile,
    SchedulingObject,
    Synced,
    is_late,
    object_name,
    queue_of,
)
from slicebus.slices.schedulers.kube import kuberay_problems
from slicebus.slices.workload.pod_scheduling import PodScheduling

Manifest = dict[str, Any]

POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
QUEUE = "scheduling.volcano.sh/queue-name"
_DEFAULT_QUEUE = "default"
_OPEN = "Open"
_GROUP_NAMES = ("scheduling.volcano.sh/group-name", "scheduling.k8s.io/group-name")


class Volcano:
    """Volcano starts `minMember` pods or none, and of each pod set as many as its subgroup has."""

    name = "volcano"
    makes: tuple[Resource, ...] = (POD_GROUPS,)
    reads: tuple[Resource, ...] = (QUEUES,)
    writes_status = False

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def validate(self, job: Manifest) -> list[Problem]:
        """Jobs that KubeRay itself schedules as gangs are refused."""
        return kuberay_problems(job)

    def prepare(self, job: Manifest, pod_set: str) -> PodScheduling:
        """The name of the PodGroup. Volcano itself makes one for a late pod."""
        group = {} if is_late(job, pod_set) else dict.fromkeys(_GROUP_NAMES, object_name(job))
        return PodScheduling(scheduler_name=self._profile.scheduler_name or "volcano", annotations=group)

    def sync(self, gang: Gang) -> Synced:
        """The PodGroup. Volcano takes a new one only into an open queue."""
        name, queue = object_name(gang.job), queue_of(gang.job, QUEUE, self._profile) or _DEFAULT_QUEUE
        if gang.find(POD_GROUPS, name) is None and (blocked := _closed(gang.find(QUEUES, queue), queue)):
            return Synced(blocked=blocked)
        spec = {
            "minMember": sum(gang.minimum.values()),
            "queue": queue,
            "subGroupPolicy": [_subgroup(pod_set, count) for pod_set, count in gang.minimum.items()],
        }
        pod_group = SchedulingObject(resource=POD_GROUPS, name=name, spec=spec)
        return Synced(objects=(pod_group,), minimum=gang.minimum, together=gang.minimum)


def _closed(queue: Manifest | None, name: str) -> Problem | None:
    if queue is None:
        return Problem("QueueNotFound", f"there is no Queue {name} (scheduling.volcano.sh)")
    state = queue.get("status", {}).get("state", "Unknown")
    if state == _OPEN:
        return None
    return Problem("QueueNotOpen", f"Queue {name} (scheduling.volcano.sh) is {state}: it takes no PodGroup")


def _subgroup(pod_set: str, count: int) -> Manifest:
    return {
        "name": pod_set,
        "labelSelector": {"matchLabels": {kueue.POD_SET_LABEL: pod_set}},
        "matchLabelKeys": [kueue.POD_SET_LABEL],
        "subGroupSize": count,
        "minSubGroups": 1,
    }
