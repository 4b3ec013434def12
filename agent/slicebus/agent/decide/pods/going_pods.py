"""Names the pods that a job loses when its notice is over, as far as that is known before.

Which pods go is up to the job's controller. The Job controller ends the highest indexes of an Indexed Job whose
completions go down too; else, in this order, pods without a node, pending ones, those that are not ready, those that
are ready for the shortest time, those with the most restarts, and the newest (`ActivePods` in
kubernetes/pkg/controller/controller_utils.go). A pod's deletion cost it does not read.
"""

import math
from collections import defaultdict
from datetime import datetime

from slicebus.agent.state.reclaim import PendingReclaim
from slicebus.agent.state.views import WorkerView
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.api.annotation_values import read_number
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.ungate import Pod

_INDEX = "batch.kubernetes.io/job-completion-index"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def going_pods(view: WorkerView, reclaim: PendingReclaim) -> list[Pod]:
    """The running pods that go, in whole replicas. Those that were told already stay the ones that go, the earliest
    deadline first."""
    return _past(view, reclaim.to)


def excess_pods(view: WorkerView) -> list[Pod]:
    """The running pods that are more than the present size of the job."""
    counts = view.counts
    return _past(view, {name: counts.get(name, len(pods.running)) for name, pods in view.own_pod_sets.items()})


def told_until(pod: Pod) -> float:
    """The deadline that a pod is told, as a timestamp: infinite where it is told nothing, 0 where it goes already."""
    if pod.is_terminating or pod.is_over:
        return 0.0
    told = PendingReclaim.from_job(pod.manifest)
    return told.ends.timestamp() if told is not None else math.inf


def surplus(view: WorkerView, to: Counts) -> Counts:
    """How many more pods run than these, by pod set; only where there are more."""
    running = {name: len(members.running) for name, members in view.own_pod_sets.items()}
    return {name: count - to.get(name, 0) for name, count in running.items() if count > to.get(name, 0)}


def _past(view: WorkerView, to: Counts) -> list[Pod]:
    return [
        pod
        for name, members in sorted(view.own_pod_sets.items())
        for pod in _first(view, name, members.running, number=len(members.running) - to.get(name, 0))
    ]


def _first(view: WorkerView, pod_set: str, pods: list[Pod], *, number: int) -> list[Pod]:
    if number <= 0 or view.reading is None:
        return []
    job, kind = view.reading.manifest, KINDS[view.key.kind]
    is_single = kind.replica_size(view.scale_target or job, pod_set) == 1
    replicas: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda pod: _rank(pod, is_indexed=_loses_indexes(job))):
        replica = "" if is_single else kind.replica(pod.labels, pod.owner_uid)[1]
        replicas[replica or pod.name].append(pod)
    chosen: list[Pod] = []
    for together in replicas.values():
        if len(chosen) + len(together) <= number:
            chosen += together
    return chosen


def _rank(pod: Pod, *, is_indexed: bool) -> tuple[float | bool | str, ...]:
    """What goes first is least."""
    metadata, status, index = pod.manifest["metadata"], pod.manifest.get("status", {}), pod.labels.get(_INDEX, "")
    ready = next((one for one in conditions_of(pod.manifest) if one["type"] == "Ready"), {})
    return (
        told_until(pod),
        -read_number(index) if is_indexed else 0,
        bool(pod.manifest["spec"].get("nodeName")),
        _PHASES.get(status.get("phase", ""), 0),
        pod.is_ready,
        -_seconds(ready.get("lastTransitionTime")),
        -max((one.get("restartCount", 0) for one in status.get("containerStatuses") or ()), default=0),
        -_seconds(metadata.get("creationTimestamp")),
        pod.name,
    )


def _loses_indexes(job: Manifest) -> bool:
    spec = job["spec"]
    return bool(spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism"))


def _seconds(time: str | None) -> float:
    try:
        return datetime.fromisoformat(time or "").timestamp()
    except ValueError:
        return 0.0
