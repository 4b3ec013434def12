"""What Ray's autoscaler writes: another size and the pods to delete in one patch, and later the names taken off again.

No Ray runs, so whoever uses this says the size. Source: Ray 2.47 and later,
`python/ray/autoscaler/v2/instance_manager/cloud_providers/kuberay/cloud_provider.py`.
"""

import asyncio
from typing import Any

from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import PODS, RAYCLUSTERS
from slicebus.proto.errors import NotFoundError
from slicebus.sandbox.controllers.controller import is_going, surplus_order
from slicebus.sandbox.controllers.ray_pods import CLUSTER_LABEL, GROUP_LABEL, REPLICA_LABEL, label
from slicebus.slices.jobs.ray import desired_replicas, groups, hosts

Manifest = dict[str, Any]

_POLL_S = 0.1
_SETTLED_S = 60.0
"""The slowest pods of the simulation take 30 s to end."""


class RayAutoscaler:
    """The autoscaler of one group of a RayCluster; `uid` makes a later cluster of the name none of its business."""

    def __init__(self, client: KubeClient, name: str, namespace: str, *, group: int = 0, uid: str = "") -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._group = group
        self._uid = uid

    async def scale(self, replicas: int) -> None:
        """Write another number of replicas, and the names of the pods that are too many."""
        found = await self._client.get(RAYCLUSTERS, self._name, self._namespace)
        if not self._is_its(found):
            raise NotFoundError(f"{self._name} is another cluster by now")
        group = groups(found["spec"])[self._group] | {"replicas": replicas}
        names = _to_delete(group, await self._pods(group))
        replace = {"op": "replace", "path": self._path("replicas"), "value": replicas}
        await self._patch(replace, *([self._strategy(names)] if names else []))

    async def settle(self, *, within_s: float = _SETTLED_S) -> None:
        """Name what KubeRay has made too many meanwhile, and clear the list when the named pods have gone.

        Returns when KubeRay has seen the size and nothing is named, when the cluster has gone, or after `within_s`.
        """
        try:
            async with asyncio.timeout(within_s):
                while True:
                    if await self.look():
                        return
                    await asyncio.sleep(_POLL_S)
        except (TimeoutError, NotFoundError):
            return

    async def look(self) -> bool:
        """One step of that: whether KubeRay has seen the size and nothing is named. Raises NotFoundError."""
        found = await self._client.get(RAYCLUSTERS, self._name, self._namespace)
        if not self._is_its(found):
            return True
        group = groups(found["spec"])[self._group]
        before, pods = _named(group), await self._pods(group)
        if any(len(members) < _size(group, members) for members in _replicas(pods)):
            return False
        names = _to_delete(group, pods)
        if names != before:
            await self._patch(self._strategy(names))
        desired = sum(desired_replicas(each) * hosts(each) for each in groups(found["spec"]))
        # KubeRay writes no newer `observedGeneration` where nothing else in the status is new.
        seen = found.get("status", {}).get("desiredWorkerReplicas", 0) == desired
        return seen and not (before or names)

    def _is_its(self, found: Manifest) -> bool:
        return self._uid in ("", found["metadata"]["uid"])

    async def _pods(self, group: Manifest) -> list[Manifest]:
        selector = f"{CLUSTER_LABEL}={self._name},{GROUP_LABEL}={group['groupName']}"
        return (await self._client.list(PODS, namespace=self._namespace, labels=selector)).items

    async def _patch(self, *operations: Manifest) -> None:
        same = [{"op": "test", "path": "/metadata/uid", "value": self._uid}] if self._uid else []
        await self._client.patch(RAYCLUSTERS, self._name, self._namespace, JsonPatch([*same, *operations]))

    def _strategy(self, names: list[str]) -> Manifest:
        return {"op": "replace", "path": self._path("scaleStrategy"), "value": {"workersToDelete": names}}

    def _path(self, field: str) -> str:
        return f"/spec/workerGroupSpecs/{self._group}/{field}"


def _named(group: Manifest) -> list[str]:
    names: list[str] = (group.get("scaleStrategy") or {}).get("workersToDelete") or []
    return names


def _to_delete(group: Manifest, pods: list[Manifest]) -> list[str]:
    """The names that belong in the list: those of before until all have gone, and the surplus.

    Of a replica of several hosts one pod is named: KubeRay deletes all of them, and an incomplete replica anyway.
    """
    names = _named(group) if any(pod["metadata"]["name"] in _named(group) for pod in pods) else []
    staying = [
        members
        for members in _replicas(pods)
        if len(members) >= _size(group, members)
        and not any(is_going(pod) or pod["metadata"]["name"] in names for pod in members)
    ]
    wanted = desired_replicas(group) * hosts(group)
    surplus = sorted(staying, key=lambda members: min(map(surplus_order, members)))
    while surplus and sum(map(len, surplus)) > wanted:
        names = [*names, surplus.pop(0)[0]["metadata"]["name"]]
    return names


def _replicas(pods: list[Manifest]) -> list[list[Manifest]]:
    """The pods by replica; without its label each is one of its own."""
    replicas: dict[str, list[Manifest]] = {}
    for pod in pods:
        replicas.setdefault(label(pod, REPLICA_LABEL) or pod["metadata"]["name"], []).append(pod)
    return list(replicas.values())


def _size(group: Manifest, members: list[Manifest]) -> int:
    """The pods of a replica when it is whole."""
    return hosts(group) if label(members[0], REPLICA_LABEL) else 1
