"""Ray's autoscaler: it asks its provider for more pods, or for the surplus to be deleted, until it has its size.

No Ray runs, so whoever uses this says the size.
"""

import asyncio
from contextlib import suppress
from typing import Any

from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import PODS, RAYCLUSTERS
from slicebus.proto.errors import NotFoundError
from slicebus.sandbox.controllers.controller import is_going, surplus_order
from slicebus.sandbox.controllers.ray_pods import CLUSTER_LABEL, GROUP_LABEL, REPLICA_LABEL, label
from slicebus.sandbox.controllers.ray_provider import PendingDeletesError, named_of, patch_of, pods_wanted
from slicebus.slices.jobs.ray import desired_replicas, groups, hosts

Manifest = dict[str, Any]

_POLL_S = 0.1
_SETTLED_S = 60.0
"""Twice as long as the slowest pods of the simulation take to end."""


class RayAutoscaler:
    """The autoscaler of one group of a RayCluster. With `uid` it leaves a later cluster of the same name alone."""

    def __init__(self, client: KubeClient, name: str, namespace: str, *, group: int = 0, uid: str = "") -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._group = group
        self._uid = uid
        self._replicas: int | None = None
        """The number of replicas that it wants; None for the group's own."""

    async def scale(self, replicas: int) -> None:
        """Want another number of replicas, and write as much of that as is possible now."""
        self._replicas = replicas
        if not self._is_its(await self._client.get(RAYCLUSTERS, self._name, self._namespace)):
            raise NotFoundError(f"{self._name} is another cluster by now")
        await self.look()

    async def settle(self, *, within_s: float = _SETTLED_S) -> None:
        """Write the rest, as soon as named pods have gone, and further surplus pods are there.

        Returns when KubeRay has seen the size and no named pod is left, when the cluster has gone, or after `within_s`.
        """
        with suppress(TimeoutError, NotFoundError):
            async with asyncio.timeout(within_s):
                while True:
                    if await self.look():
                        return
                    await asyncio.sleep(_POLL_S)

    async def look(self) -> bool:
        """Do one step of `settle`. Returns whether it was the last. Raises NotFoundError."""
        cluster = await self._client.get(RAYCLUSTERS, self._name, self._namespace)
        if not self._is_its(cluster):
            return True
        spec, pods = cluster["spec"], await self._pods()
        group = groups(spec)[self._group]
        more = self._wanted(group) - pods_wanted(spec, pods)[group["groupName"]]
        surplus = _surplus(group, pods, wanted=self._wanted(group)) if more < 0 else []
        with suppress(PendingDeletesError):
            if more > 0 and (patch := patch_of(spec, pods, launch={group["groupName"]: more})):
                await self._patch(patch)
                return False
            if surplus:
                await self._patch(patch_of(spec, pods, terminate=surplus))
                return False
        desired = sum(desired_replicas(worker_group) * hosts(worker_group) for worker_group in groups(spec))
        # KubeRay does not write a newer `observedGeneration` where nothing else in the status has changed.
        seen = cluster.get("status", {}).get("desiredWorkerReplicas", 0) == desired
        return seen and more >= 0 and not any(pod["metadata"]["name"] in named_of(group) for pod in pods)

    def _wanted(self, group: Manifest) -> int:
        """The pods, within the bounds of the group."""
        replicas = group["replicas"] if self._replicas is None else self._replicas
        return desired_replicas(group | {"replicas": replicas}) * hosts(group)

    def _is_its(self, cluster: Manifest) -> bool:
        return self._uid in ("", cluster["metadata"]["uid"])

    async def _pods(self) -> list[Manifest]:
        selector = f"{CLUSTER_LABEL}={self._name}"
        return (await self._client.list(PODS, namespace=self._namespace, labels=selector)).items

    async def _patch(self, patch: list[Manifest]) -> None:
        same = [{"op": "test", "path": "/metadata/uid", "value": self._uid}] if self._uid else []
        await self._client.patch(RAYCLUSTERS, self._name, self._namespace, JsonPatch([*same, *patch]))


def _surplus(group: Manifest, pods: list[Manifest], *, wanted: int) -> list[str]:
    """The names of the pods of a group that are too many, of whole replicas only: KubeRay deletes the others anyway."""
    replicas: dict[str, list[Manifest]] = {}
    for pod in pods:
        if label(pod, GROUP_LABEL) == group["groupName"] and not is_going(pod):
            replicas.setdefault(label(pod, REPLICA_LABEL) or pod["metadata"]["name"], []).append(pod)
    left, names = sum(map(len, replicas.values())) - wanted, list[str]()
    for members in sorted(replicas.values(), key=lambda members: min(map(surplus_order, members))):
        is_whole = not label(members[0], REPLICA_LABEL) or len(members) >= hosts(group)
        if is_whole and len(members) <= left:
            left -= len(members)
            names += [pod["metadata"]["name"] for pod in members]
    return names
