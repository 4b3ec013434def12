"""Decides for KubeRay's stand-in which pods of one worker group go, and which are made. Pure.

Source of the rules: KubeRay 1.7, `reconcilePods`, `reconcileMultiHostWorkerGroup` and `shouldDeletePod` in
`ray-operator/controllers/ray/raycluster_controller.go`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from slicebus.ambient.clock import random_hex
from slicebus.slices.jobs.ray import autoscales, desired_replicas, hosts

Manifest = dict[str, Any]
Labels = dict[str, str]

CLUSTER_LABEL = "ray.io/cluster"
NODE_TYPE_LABEL = "ray.io/node-type"
GROUP_LABEL = "ray.io/group"
REPLICA_LABEL = "ray.io/worker-group-replica-name"
REPLICA_INDEX_LABEL = "ray.io/worker-group-replica-index"
HOST_INDEX_LABEL = "ray.io/replica-host-index"
_OWN_CONTROLLER = (None, "", "ray.io/kuberay-operator")


class GroupStep(msgspec.Struct, frozen=True):
    """What one pass does to a group."""

    delete: Sequence[str] = ()
    """The names of pods to delete. Those that `workersToDelete` names go even where they are of another group."""
    create: Sequence[Labels] = ()
    """What distinguishes each new pod from the others of its group."""
    ends_pass: bool = False
    """Whether the later groups of the cluster wait for the next pass."""


def next_step(cluster_spec: Manifest, group: Manifest, pods: Sequence[Manifest], *, replica_labels: bool) -> GroupStep:
    """The step for a group that is not suspended. `pods` are all its pods, with those that are going.

    With the autoscaler on, only `workersToDelete` makes a healthy pod go. Otherwise the first of `pods` go.
    """
    surplus_goes = not autoscales(cluster_spec)
    if replica_labels and hosts(group) > 1:
        return _whole_replicas(group, pods, surplus_goes=surplus_goes)
    return _single_pods(group, pods, surplus_goes=surplus_goes, replica_labels=replica_labels)


def is_unhealthy(pod: Manifest) -> bool:
    """Whether a pod has ended, or its Ray container has and is not started again."""
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    ray = pod["spec"]["containers"][0]["name"]
    states = [entry.get("state") or {} for entry in status.get("containerStatuses") or () if entry["name"] == ray]
    ended = any("terminated" in state for state in states)
    return status.get("phase") == "Running" and ended and pod["spec"].get("restartPolicy") == "Never"


def cluster_key(pod: Manifest) -> Iterable[str]:
    """The namespace and the cluster that a pod belongs to: KubeRay finds pods by label, whoever owns them."""
    name = label(pod, CLUSTER_LABEL)
    return [f"{pod['metadata']['namespace']}/{name}"] if name else []


def label(pod: Manifest, name: str) -> str:
    """The value of a label; empty where it is not set."""
    value: str = (pod["metadata"].get("labels") or {}).get(name, "")
    return value


def is_own(spec: Manifest) -> bool:
    """Whether a spec leaves its object to KubeRay."""
    return spec.get("managedBy") in _OWN_CONTROLLER


def suffix() -> str:
    """A suffix as the API server adds to a generated name."""
    return random_hex(3)[:5]


def _single_pods(group: Manifest, pods: Sequence[Manifest], *, surplus_goes: bool, replica_labels: bool) -> GroupStep:
    """Count every pod by itself. A pod that is going counts until it has gone, unless this pass deletes it."""
    unhealthy = [_name(pod) for pod in pods if is_unhealthy(pod)]
    if unhealthy:
        return GroupStep(delete=unhealthy, ends_pass=True)
    named = _named(group)
    staying = [pod for pod in pods if _name(pod) not in named]
    missing = desired_replicas(group) * hosts(group) - len(staying)
    if missing < 0 and surplus_goes:
        named += [_name(pod) for pod in staying[:-missing]]
    indices = _free_indices(staying)
    create = [_index(next(indices)) if replica_labels else {} for _ in range(missing)]
    return GroupStep(delete=named, create=create)


def _whole_replicas(group: Manifest, pods: Sequence[Manifest], *, surplus_goes: bool) -> GroupStep:
    """Count every replica as one. Pods without the label are of an older operator: nobody counts or deletes them."""
    replicas: dict[str, list[Manifest]] = {}
    for pod in pods:
        if label(pod, REPLICA_LABEL):
            replicas.setdefault(label(pod, REPLICA_LABEL), []).append(pod)
    for members in replicas.values():
        if len(members) < hosts(group):
            return GroupStep(delete=[_name(pod) for pod in members], ends_pass=True)
    unhealthy = [name for name, members in replicas.items() if any(map(is_unhealthy, members))]
    delete = [_name(pod) for name in unhealthy for pod in replicas[name]]
    wanted_away = set(_named(group))
    named = [members for members in replicas.values() if any(_name(pod) in wanted_away for pod in members)]
    if named:
        names = (_name(pod) for members in named for pod in members)
        return GroupStep(delete=list(dict.fromkeys((*delete, *names))), ends_pass=True)
    staying = [members for name, members in replicas.items() if name not in unhealthy]
    missing = desired_replicas(group) - len(staying)
    if missing < 0 and surplus_goes:
        delete += [_name(pod) for members in staying[:-missing] for pod in members]
    indices = _free_indices([members[0] for members in staying])
    create = [labels for _ in range(missing) for labels in _replica(group, next(indices))]
    return GroupStep(delete=delete, create=create)


def _named(group: Manifest) -> list[str]:
    return list((group.get("scaleStrategy") or {}).get("workersToDelete") or ())


def _replica(group: Manifest, index: int) -> list[Labels]:
    name = {REPLICA_LABEL: f"{group['groupName']}-{suffix()}"}
    return [_index(index) | name | {HOST_INDEX_LABEL: str(host)} for host in range(hosts(group))]


def _index(index: int) -> Labels:
    return {REPLICA_INDEX_LABEL: str(index)}


def _free_indices(pods: Iterable[Manifest]) -> Iterator[int]:
    """The indices from 0 up that no pod has."""
    taken = {label(pod, REPLICA_INDEX_LABEL) for pod in pods}
    index = 0
    while True:
        if str(index) not in taken:
            yield index
        index += 1


def _name(pod: Manifest) -> str:
    name: str = pod["metadata"]["name"]
    return name
