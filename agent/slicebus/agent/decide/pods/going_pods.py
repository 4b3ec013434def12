"""Names the pods that a job loses when its notice is over, as far as that is known before.

Which pods go is up to the job's controller. The Job controller ends the highest indexes of an Indexed Job whose
completions go down too; else, in this order, pods without a node, pending ones, those that are not ready, those that
are ready for the shortest time, those with the most restarts, and the newest (`ActivePods` in
kubernetes/pkg/controller/controller_utils.go). A pod's deletion cost it does not read. A LeaderWorkerSet ends the
groups of the highest indexes.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime
from itertools import chain

from slicebus.agent.state.reclaim import PendingReclaim
from slicebus.agent.state.views import WorkerView
from slicebus.proto.messages import Counts
from slicebus.slices.api.annotation_values import read_number
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.ungate import Pod

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
    """The deadline that a pod is told, as a timestamp; infinite where it is told nothing."""
    told = PendingReclaim.from_job(pod.manifest)
    return told.ends.timestamp() if told is not None else math.inf


def surplus(view: WorkerView, to: Counts) -> Counts:
    """How many more pods run than a job of this size has, by pod set; only where there are more."""
    left, running = _left_at(view, to), {name: len(members.running) for name, members in view.own_pod_sets.items()}
    return {name: count - left.get(name, 0) for name, count in running.items() if count > left.get(name, 0)}


def _left_at(view: WorkerView, size: Counts) -> Counts:
    return KINDS[view.key.kind].left_at(view.reading.manifest, size) if view.reading is not None else size


def _past(view: WorkerView, to: Counts) -> list[Pod]:
    """What goes first of the running pods, as many as are more than a job of this size has, and every pod whose number
    is past it."""
    if view.reading is None:
        return []
    kind, target = KINDS[view.key.kind], view.scale_target or view.reading.manifest
    running = {name: members.running for name, members in view.own_pod_sets.items()}
    numbers = {name: label for name in running if (label := kind.index_label(target, name))}
    kept = {name: to.get(name, 0) // kind.step(target, name) for name in numbers}
    left = _left_at(view, to)
    surplus = Counter({name: len(pods) - left.get(name, 0) for name, pods in running.items()})
    replicas: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in sorted(chain(*running.values()), key=lambda pod: _rank(pod, _index(pod, numbers))):
        replicas[kind.replica(pod.labels, pod.owner_uid)[1] or pod.name].append(pod)
    chosen: list[Pod] = []
    for together in replicas.values():
        counts = Counter(pod.pod_set for pod in together)
        is_past = any(_index(pod, numbers) >= kept.get(pod.pod_set, math.inf) for pod in together)
        if is_past or any(count <= surplus[name] for name, count in counts.items()):
            chosen += together
            surplus.subtract(counts)
    return chosen


def _index(pod: Pod, numbers: Mapping[str, str]) -> int:
    return read_number(pod.labels.get(numbers.get(pod.pod_set, "")))


def _rank(pod: Pod, index: int) -> tuple[float | bool | str, ...]:
    """What goes first is least."""
    metadata, status = pod.manifest["metadata"], pod.manifest.get("status", {})
    ready = next((one for one in conditions_of(pod.manifest) if one["type"] == "Ready"), {})
    return (
        told_until(pod),
        -index,
        not pod.is_terminating,
        bool(pod.manifest["spec"].get("nodeName")),
        _PHASES.get(status.get("phase", ""), 0),
        pod.is_ready,
        -_seconds(ready.get("lastTransitionTime")),
        -max((one.get("restartCount", 0) for one in status.get("containerStatuses") or ()), default=0),
        -_seconds(metadata.get("creationTimestamp")),
        pod.name,
    )


def _seconds(time: str | None) -> float:
    try:
        return datetime.fromisoformat(time or "").timestamp()
    except ValueError:
        return 0.0
