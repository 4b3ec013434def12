"""Which pods may start: at most as many of each pod set as the slice grants."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import filterfalse
from typing import Any

import msgspec

from slicebus.slices import kueue

Manifest = dict[str, Any]

_REPLICA_LABEL = "ray.io/worker-group-replica-name"
"""KubeRay's name of the replica that a pod of a multi-host group belongs to."""
_OVER = ("Succeeded", "Failed")


class Members(msgspec.Struct):
    """The pods of a pod set that have not ended."""

    gated: list[Manifest] = []
    running: list[Manifest] = []
    """They use what was granted: they have no gate. A terminating one does too."""


PodSets = Mapping[str, Members]
"""By name."""


def is_gated(pod: Manifest) -> bool:
    """Whether our gate holds the pod."""
    gates = pod["spec"].get("schedulingGates")
    return bool(gates) and any(gate["name"] == kueue.ELASTIC_GATE for gate in gates)


def is_over(pod: Manifest) -> bool:
    """Whether a pod has succeeded or failed."""
    return pod.get("status", {}).get("phase") in _OVER


def by_pod_set(pods: Iterable[Manifest]) -> PodSets:
    """The pods that have not ended, by the pod set that they are in."""
    sets: defaultdict[str, Members] = defaultdict(Members)
    for pod in pods:
        if not is_over(pod):
            members = sets[pod_set_of(pod)]
            (members.gated if is_gated(pod) else members.running).append(pod)
    return dict(sets)


def pod_set_of(pod: Manifest) -> str:
    """The pod set of a pod, from the label that the template gave it."""
    name: str = pod["metadata"].get("labels", {}).get(kueue.POD_SET_LABEL, "")
    return name


def opened(pod: Manifest) -> Manifest:
    """The pod without our gate."""
    gates = [gate for gate in pod["spec"].get("schedulingGates") or () if gate["name"] != kueue.ELASTIC_GATE]
    return pod | {"spec": pod["spec"] | {"schedulingGates": gates}}


def to_ungate(
    pod_sets: PodSets, granted: Mapping[str, int], *, replica_size: Callable[[str], int] = lambda _: 1
) -> list[Manifest]:
    """The gated pods that may start now, lowest name first.

    Of each pod set granted minus what runs already. Pods of a multi-host replica start together or not at all.
    """
    chosen: list[Manifest] = []
    for name, members in sorted(pod_sets.items()):
        room = granted.get(name, 0) - len(members.running)
        for replica in _replicas(members, size=replica_size(name)) if members.gated else ():
            if len(replica) <= room:
                room -= len(replica)
                chosen += replica
    return chosen


def could_start(pod_sets: PodSets, granted: Mapping[str, int]) -> list[Manifest]:
    """The gated pods of pod sets that have room: any of them may be the one that somebody else has just picked."""
    return [
        pod
        for name, members in pod_sets.items()
        if len(members.running) < granted.get(name, 0)
        for pod in members.gated
    ]


def _is_terminating(pod: Manifest) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _replicas(members: Members, *, size: int) -> list[list[Manifest]]:
    """Waiting pods by the replica that they start with; a replica whose pods are not all there yet is left out."""
    waiting = sorted(filterfalse(_is_terminating, members.gated), key=lambda pod: pod["metadata"]["name"])
    if size == 1:
        return [[pod] for pod in waiting]
    replicas: defaultdict[str, list[Manifest]] = defaultdict(list)
    for pod in waiting:
        replicas[_replica_of(pod)].append(pod)
    present = Counter(_replica_of(pod) for pod in (*members.gated, *members.running) if not _is_terminating(pod))
    return [pods for name, pods in replicas.items() if name and present[name] >= size]


def _replica_of(pod: Manifest) -> str:
    name: str = pod["metadata"].get("labels", {}).get(_REPLICA_LABEL, "")
    return name
