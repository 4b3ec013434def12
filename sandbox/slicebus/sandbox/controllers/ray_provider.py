"""Writes what Ray's Kubernetes provider writes when its autoscaler asks for more pods, or for some to be deleted.

A pure function of the cluster and its pods; tests compare it with Ray's own. Source: Ray 2.47 and later,
`python/ray/autoscaler/v2/instance_manager/cloud_providers/kuberay/cloud_provider.py`.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from slicebus.sandbox.controllers.controller import is_going
from slicebus.sandbox.controllers.ray_pods import GROUP_LABEL, NODE_TYPE_LABEL, label
from slicebus.slices.jobs.ray import groups, hosts

Manifest = dict[str, Any]


class PendingDeletesError(Exception):
    """Pods that were named before are still there: Ray asks again later, whatever group it is about."""


def patch_of(
    spec: Manifest, pods: list[Manifest], *, launch: Mapping[str, int] | None = None, terminate: Collection[str] = ()
) -> list[Manifest]:
    """The JSON patch of a cluster's spec that gives groups so many pods more, or has the named pods deleted.

    `pods` are all of the cluster. A list whose pods have all gone is cleared by the next patch, not before. Raises
    PendingDeletesError.
    """
    present = {pod["metadata"]["name"]: label(pod, GROUP_LABEL) for pod in pods if _counts(pod)}
    if any(name in present for group in groups(spec) for name in named_of(group)):
        raise PendingDeletesError
    wanted = pods_wanted(spec, pods)
    for name, count in (launch or {}).items():
        wanted[name] += count
    deleted: dict[str, list[str]] = {}
    for pod in terminate:
        if pod in present:
            wanted[present[pod]] -= 1
            deleted.setdefault(present[pod], []).append(pod)
    patch = [*_sizes(spec, wanted)]
    for index, group in enumerate(groups(spec)):
        if names := deleted.get(group["groupName"]):
            patch.append(_strategy(index, names))
        elif named_of(group):
            patch.append(_strategy(index, []))
    return patch


def pods_wanted(spec: Manifest, pods: list[Manifest]) -> Counter[str]:
    """The number of pods of each group that Ray takes for wanted: its replicas, or the present pods where a user has
    lowered the replicas without names."""
    named = {name for group in groups(spec) for name in named_of(group)}
    there = Counter(label(pod, GROUP_LABEL) for pod in pods if _counts(pod) and pod["metadata"]["name"] not in named)
    return Counter(
        {
            group["groupName"]: max(
                max(group["replicas"], group["minReplicas"]) * hosts(group), there[group["groupName"]]
            )
            for group in groups(spec)
        }
    )


def named_of(group: Manifest) -> list[str]:
    """The names of pods in a group's `workersToDelete`."""
    names: list[str] = (group.get("scaleStrategy") or {}).get("workersToDelete") or []
    return names


def _counts(pod: Manifest) -> bool:
    """Whether Ray counts a pod: a worker that nobody has begun to delete."""
    return label(pod, NODE_TYPE_LABEL) == "worker" and not is_going(pod)


def _sizes(spec: Manifest, wanted: Mapping[str, int]) -> list[Manifest]:
    patch = []
    for index, group in enumerate(groups(spec)):
        replicas, most = wanted[group["groupName"]] // hosts(group), group.get("maxReplicas")
        if most is not None:
            replicas = min(replicas, most)
        if replicas != group["replicas"]:
            patch.append({"op": "replace", "path": f"/spec/workerGroupSpecs/{index}/replicas", "value": replicas})
    return patch


def _strategy(index: int, names: list[str]) -> Manifest:
    path = f"/spec/workerGroupSpecs/{index}/scaleStrategy"
    return {"op": "replace", "path": path, "value": {"workersToDelete": names}}
