"""Which pods may start: at most as many of each pod set as the slice grants."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from slicebus.slices import kueue

Manifest = dict[str, Any]

_REPLICA_LABEL = "ray.io/worker-group-replica-name"
"""KubeRay's name of the replica that a pod of a multi-host group belongs to."""
_OVER = ("Succeeded", "Failed")


def is_gated(pod: Manifest) -> bool:
    """Whether our gate holds the pod."""
    gates = pod["spec"].get("schedulingGates")
    return bool(gates) and any(gate["name"] == kueue.ELASTIC_GATE for gate in gates)


def is_over(pod: Manifest) -> bool:
    """Whether a pod has succeeded or failed."""
    return pod.get("status", {}).get("phase") in _OVER


def runs(pod: Manifest) -> bool:
    """Whether a pod uses what was granted: it has no gate, and has not ended. A terminating one does."""
    return not is_gated(pod) and not is_over(pod)


def running(pods: Iterable[Manifest]) -> Counter[str]:
    """How many pods of each pod set run."""
    return Counter(pod_set_of(pod) for pod in pods if runs(pod))


def pod_set_of(pod: Manifest) -> str:
    """The pod set of a pod, from the label that the template gave it."""
    name: str = pod["metadata"].get("labels", {}).get(kueue.POD_SET_LABEL, "")
    return name


def opened(pod: Manifest) -> Manifest:
    """The pod without our gate."""
    gates = [gate for gate in pod["spec"].get("schedulingGates") or () if gate["name"] != kueue.ELASTIC_GATE]
    return pod | {"spec": pod["spec"] | {"schedulingGates": gates}}


def to_ungate(
    pods: Iterable[Manifest], granted: Mapping[str, int], *, replica_size: Callable[[str], int] = lambda _: 1
) -> list[Manifest]:
    """The gated pods that may start now, lowest name first.

    Of each pod set granted minus what runs already. A terminating pod still counts, one that has succeeded or failed
    does not. Pods of a multi-host replica start together or not at all.
    """
    pods = list(pods)
    if not any(map(is_gated, pods)):
        return []
    by_set: defaultdict[str, list[Manifest]] = defaultdict(list)
    for pod in pods:
        if not is_over(pod):
            by_set[pod_set_of(pod)].append(pod)
    chosen: list[Manifest] = []
    for name, members in sorted(by_set.items()):
        used = sum(not is_gated(pod) for pod in members)
        waiting = [pod for pod in members if is_gated(pod) and not _is_terminating(pod)]
        room = granted.get(name, 0) - used
        for replica in _replicas(waiting, members, size=replica_size(name)):
            if len(replica) <= room:
                room -= len(replica)
                chosen += replica
    return chosen


def could_start(pods: Sequence[Manifest], granted: Mapping[str, int]) -> list[Manifest]:
    """The gated pods of pod sets that have room: any of them may be the one that somebody else has just picked."""
    gated, used = [pod for pod in pods if is_gated(pod) and not is_over(pod)], running(pods)
    return [pod for pod in gated if used[pod_set_of(pod)] < granted.get(pod_set_of(pod), 0)]


def _is_terminating(pod: Manifest) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _replicas(waiting: list[Manifest], members: list[Manifest], *, size: int) -> list[list[Manifest]]:
    """Waiting pods by the replica that they start with; a replica whose pods are not all there yet is left out."""
    by_name = sorted(waiting, key=lambda pod: pod["metadata"]["name"])
    if size == 1:
        return [[pod] for pod in by_name]
    replicas: defaultdict[str, list[Manifest]] = defaultdict(list)
    for pod in by_name:
        replicas[pod["metadata"].get("labels", {}).get(_REPLICA_LABEL, "")].append(pod)
    present: defaultdict[str, int] = defaultdict(int)
    for pod in members:
        if not _is_terminating(pod):
            present[pod["metadata"].get("labels", {}).get(_REPLICA_LABEL, "")] += 1
    return [pods for name, pods in replicas.items() if name and present[name] >= size]
