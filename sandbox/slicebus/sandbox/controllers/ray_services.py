"""KubeRay's stand-in for RayServices: a RayCluster that serves, and another one beside it during an upgrade.

A cluster serves as soon as it is ready: nobody deploys applications here. Upgrades in steps are none of its.
Source of the rules: KubeRay 1.7, `ray-operator/controllers/ray/rayservice_controller.go`.
"""

import asyncio
from typing import Any

from slicebus.kube.client import KubeClient
from slicebus.kube.resources import RAYCLUSTERS, RAYSERVICES
from slicebus.sandbox.controllers.controller import Controller, owner_reference
from slicebus.sandbox.controllers.ray_pods import is_own, suffix
from slicebus.slices.fingerprints import content_hash
from slicebus.slices.jobs.copies import without
from slicebus.slices.jobs.ray import groups

Manifest = dict[str, Any]

_HASH_ANNOTATION = "ray.io/hash-without-replicas-and-workers-to-delete"
_MUTED = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")
_DELETION_DELAY_S = 60.0
_NO_CLUSTER: Manifest = {"rayClusterName": ""}


class RayServiceController:
    """Runs RayServices without a `managedBy` of another controller."""

    def __init__(self, client: KubeClient) -> None:
        self._controller = Controller(client, RAYSERVICES, RAYCLUSTERS)
        self._goes_at: dict[str, float] = {}
        """When a cluster that serves no more is deleted, by its UID and the loop's time."""

    async def run(self) -> None:
        """Run RayServices until cancelled."""
        await self._controller.run(self._reconcile)

    async def _reconcile(self, service: Manifest) -> None:
        spec, status = service["spec"], service.get("status", {})
        if not is_own(spec) or "deletionTimestamp" in service["metadata"]:
            return
        clusters = {found["metadata"]["name"]: found for found in self._controller.children(RAYCLUSTERS, service)}
        if spec.get("suspend"):
            for cluster in clusters.values():
                await self._controller.delete(RAYCLUSTERS, cluster)
            await self._controller.set_status(service, _status(None, None))
            return
        active, pending = (_name_of(status, which) for which in ("activeServiceStatus", "pendingServiceStatus"))
        if pending is not None and pending not in clusters:
            clusters[pending] = await self._make_cluster(service, pending)
        if pending is not None and _is_ready(clusters[pending]):
            active, pending = pending, None
        if _needs_another(service, clusters.get(pending or active or "")):
            pending = f"{service['metadata']['name']}-{suffix()}"
        await self._controller.set_status(service, _status(active, pending))
        await self._clean_up(service, [found for name, found in clusters.items() if name not in (active, pending)])

    async def _clean_up(self, service: Manifest, clusters: list[Manifest]) -> None:
        """Delete what serves no more, some time after it did."""
        now, delay_s = asyncio.get_running_loop().time(), service["spec"].get("rayClusterDeletionDelaySeconds")
        for cluster in clusters:
            due = now + (_DELETION_DELAY_S if delay_s is None else delay_s)
            left_s = self._goes_at.setdefault(cluster["metadata"]["uid"], due) - now
            if left_s <= 0:
                await self._controller.delete(RAYCLUSTERS, cluster)
            else:
                metadata = service["metadata"]
                self._controller.queue.add_after((metadata["namespace"], metadata["name"]), left_s)

    async def _make_cluster(self, service: Manifest, name: str) -> Manifest:
        metadata, origin = service["metadata"], "ray.io/originated-from-cr"
        manifest = {
            "apiVersion": RAYCLUSTERS.api_version,
            "kind": RAYCLUSTERS.kind,
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": (metadata.get("labels") or {})
                | {f"{origin}-name": metadata["name"], f"{origin}d": "RayService"},
                "annotations": (metadata.get("annotations") or {}) | {_HASH_ANNOTATION: _hash(service)},
                "ownerReferences": [owner_reference(service)],
            },
            "spec": service["spec"]["rayClusterConfig"],
        }
        return await self._controller.create(RAYCLUSTERS, manifest)


def _status(active: str | None, pending: str | None) -> Manifest:
    return {
        "serviceStatus": "Running" if active else "",
        "activeServiceStatus": {"rayClusterName": active} if active else _NO_CLUSTER,
        "pendingServiceStatus": {"rayClusterName": pending} if pending else _NO_CLUSTER,
    }


def _name_of(status: Manifest, which: str) -> str | None:
    return (status.get(which) or {}).get("rayClusterName") or None


def _is_ready(cluster: Manifest) -> bool:
    return bool(cluster.get("status", {}).get("state") == "ready")


def _needs_another(service: Manifest, cluster: Manifest | None) -> bool:
    """Whether a cluster is to be prepared: there is none, or it was made of another spec."""
    if cluster is None:
        return True
    strategy = (service["spec"].get("upgradeStrategy") or {}).get("type")
    return strategy != "None" and cluster["metadata"]["annotations"].get(_HASH_ANNOTATION) != _hash(service)


def _hash(service: Manifest) -> str:
    """Of a cluster's spec, without what changes while it runs."""
    spec = service["spec"]["rayClusterConfig"]
    return content_hash(spec | {"workerGroupSpecs": [without(group, _MUTED) for group in groups(spec)]})
