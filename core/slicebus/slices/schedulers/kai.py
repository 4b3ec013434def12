"""Makes a PodGroup of a job for KAI Scheduler, with a subgroup for each pod set."""

from typing import Any

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

POD_GROUPS = Resource("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup")
QUEUES = Resource("scheduling.run.ai", "v2", "queues", "Queue", namespaced=False)
QUEUE = "kai.scheduler/queue"
_SKIP_PODGROUPER = {"kai.scheduler/skip-podgrouper": "true"}
_POD_GROUP = "pod-group-name"
_SUBGROUP = "kai.scheduler/subgroup-name"


class Kai:
    """KAI starts all of the subgroups' minimum members or none. Its own pod grouper leaves such pods alone."""

    name = "kai"
    makes: tuple[Resource, ...] = (POD_GROUPS,)
    reads: tuple[Resource, ...] = (QUEUES,)
    writes_status = False

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def validate(self, job: Manifest) -> list[Problem]:
        """Jobs without a queue are refused: KAI schedules nothing without one."""
        if self._queue(job):
            return kuberay_problems(job)
        message = f"KAI needs a queue: name one by the label {QUEUE}, or in the profile of the cluster's agent"
        return [Problem("QueueNotSet", message), *kuberay_problems(job)]

    def prepare(self, job: Manifest, pod_set: str) -> PodScheduling:
        """The queue, and the names of the PodGroup and the subgroup. KAI itself groups late pods."""
        scheduler = self._profile.scheduler_name or "kai-scheduler"
        if is_late(job, pod_set):
            return PodScheduling(scheduler_name=scheduler, labels={QUEUE: self._queue(job)})
        return PodScheduling(
            scheduler_name=scheduler,
            labels={QUEUE: self._queue(job), _SUBGROUP: pod_set},
            annotations=_SKIP_PODGROUPER | {_POD_GROUP: object_name(job)},
        )

    def sync(self, gang: Gang) -> Synced:
        """The PodGroup. Its queue stays that of its creation, as KAI has it."""
        name, queue = object_name(gang.job), self._queue(gang.job)
        present = gang.find(POD_GROUPS, name)
        if present is None and gang.find(QUEUES, queue) is None:
            return Synced(blocked=Problem("QueueNotFound", f"there is no Queue {queue} (scheduling.run.ai)"))
        spec = {
            "minMember": sum(gang.minimum.values()),
            "queue": present["spec"].get("queue", queue) if present is not None else queue,
            "subGroups": [{"name": pod_set, "minMember": count} for pod_set, count in gang.minimum.items()],
        }
        pod_group = SchedulingObject(resource=POD_GROUPS, name=name, spec=spec, annotations=_SKIP_PODGROUPER)
        return Synced(objects=(pod_group,), minimum=gang.minimum, together=gang.minimum)

    def _queue(self, job: Manifest) -> str:
        return queue_of(job, QUEUE, self._profile)
