"""KubeRay's stand-in for RayServices: a RayCluster that serves, and another one beside it during an upgrade.

A cluster serves as soon as its head is ready: nobody deploys applications here. It does no upgrades in steps. Source of
the rules: KubeRay 1.7, `ray-operator/controllers/ray/rayservice_controller.go`.
"""

import asyncio
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from slicebus.kube.client import KubeClient
from slicebus.kube.resources import RAYCLUSTERS, RAYSERVICES
from slicebus.kube.times import now_text
from slicebus.proto.errors import ConflictError, NotFoundError
from slicebus.sandbox.controllers.controller import Controller, owner_reference
from slicebus.sandbox.controllers.ray import HEAD_READY
from slicebus.sandbox.controllers.ray_pods import is_own, suffix
from slicebus.slices.api.conditions import Finding, conditions_of, with_findings
from slicebus.slices.api.fingerprints import content_hash
from slicebus.slices.jobs.copies import without
from slicebus.slices.jobs.ray import groups

Manifest = dict[str, Any]

FINALIZER = "ray.io/rayservice-finalizer"
_HASH_ANNOTATION = "ray.io/hash-without-replicas-and-workers-to-delete"
_GROUPS_ANNOTATION = "ray.io/num-worker-groups"
_MUTED = ("suspend", "upgradeStrategy")
_MUTED_OF_GROUP = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")
_MUTED_OF_POD = ("tolerations", "schedulingGates")
_TIMEOUT_ANNOTATION = "ray.io/initializing-timeout"
_DURATION = re.compile(r"[0-9]+|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+")
_READY = "Ready"
_DELETION_DELAY_S = 60.0
_AGAIN_S = 2.0
_NO_CLUSTER: Manifest = {"rayClusterName": ""}
_SUSPENDING, _SUSPENDED, _UPGRADING = "Suspending", "Suspended", "UpgradeInProgress"


class RayServiceController:
    """Runs RayServices without a `managedBy` of another controller."""

    def __init__(self, client: KubeClient) -> None:
        self._controller = Controller(client, RAYSERVICES, RAYCLUSTERS)
        self._goes_at: dict[str, float] = {}
        """When each cluster that no longer serves is deleted, by its UID, in the loop's time."""

    async def run(self) -> None:
        """Run RayServices until cancelled."""
        await self._controller.run(self._reconcile)

    async def _reconcile(self, service: Manifest) -> None:
        if not is_own(service["spec"]):
            return
        clusters = {cluster["metadata"]["name"]: cluster for cluster in self._controller.children(RAYCLUSTERS, service)}
        if "deletionTimestamp" in service["metadata"]:
            await self._end(service, clusters.values())
        elif FINALIZER not in (service["metadata"].get("finalizers") or ()):
            await self._set_finalizers(service, [*(service["metadata"].get("finalizers") or ()), FINALIZER])
        elif (text := _initializing_timeout(service)) and not _DURATION.fullmatch(text):
            message = f"the annotation {_TIMEOUT_ANNOTATION} is no duration: {text}"
            await self._show(service, Finding(_READY, False, "ValidationFailed", message))
        elif service["spec"].get("suspend") or _is(service, _SUSPENDING) or _is(service, _SUSPENDED):
            await self._suspend(service, clusters.values())
        else:
            await self._serve(service, clusters)

    async def _end(self, service: Manifest, clusters: Collection[Manifest]) -> None:
        """Delete its clusters, and let it go once they have gone."""
        finalizers = service["metadata"].get("finalizers") or []
        await self._delete(service, clusters)
        if not clusters and FINALIZER in finalizers:
            await self._set_finalizers(service, [name for name in finalizers if name != FINALIZER])

    async def _suspend(self, service: Manifest, clusters: Collection[Manifest]) -> None:
        """First show that it is being suspended, then delete all that it has. Only after that it may be resumed."""
        if _is(service, _SUSPENDED):
            if not service["spec"].get("suspend"):
                await self._show(service, Finding(_SUSPENDED, False, "RayServiceResumed", ""))
        elif not _is(service, _SUSPENDING):
            now = Finding(_SUSPENDING, True, "SuspendRequested", "")
            await self._show(service, now, Finding(_UPGRADING, False, "SuspendInProgress", ""), **_status(None, None))
        elif clusters:
            await self._delete(service, clusters)
        else:
            done = (
                Finding(_SUSPENDING, False, "SuspendComplete", ""),
                Finding(_SUSPENDED, True, "SuspendComplete", ""),
            )
            await self._show(service, *done)

    async def _serve(self, service: Manifest, clusters: dict[str, Manifest]) -> None:
        status = service.get("status", {})
        active, pending = (_name_of(status, which) for which in ("activeServiceStatus", "pendingServiceStatus"))
        if pending is not None and pending not in clusters:
            # KubeRay reconciles again after a while, also where RayClusters are not served now.
            self._requeue(service, _AGAIN_S)
            clusters[pending] = await self._make_cluster(service, pending)
        # During an upgrade the cluster that serves stays as it is.
        for name in (pending, None if _is(service, _UPGRADING) else active):
            if name in clusters and _has_groups_more(service, clusters[name]):
                clusters[name] = await self._extend(service, clusters[name])
        if pending is not None and _is_serving(clusters[pending]):
            active, pending = pending, None
        elif _needs_another(service, clusters.get(pending or active or "")):
            pending = f"{service['metadata']['name']}-{suffix()}"
        upgrades = Finding(_UPGRADING, active is not None and pending is not None, "Clusters", "")
        await self._show(service, upgrades, **_status(active, pending))
        await self._clean_up(service, [cluster for name, cluster in clusters.items() if name not in (active, pending)])

    async def _clean_up(self, service: Manifest, clusters: list[Manifest]) -> None:
        """Delete clusters that no longer serve, some time after they did."""
        now, delay_s = asyncio.get_running_loop().time(), service["spec"].get("rayClusterDeletionDelaySeconds")
        for cluster in clusters:
            due = now + (_DELETION_DELAY_S if delay_s is None else delay_s)
            left_s = self._goes_at.setdefault(cluster["metadata"]["uid"], due) - now
            if left_s <= 0:
                await self._controller.delete(RAYCLUSTERS, cluster)
            else:
                self._requeue(service, left_s)

    async def _delete(self, service: Manifest, clusters: Collection[Manifest]) -> None:
        """Delete clusters, whose end is seen later. KubeRay reconciles again after a while in any case."""
        for cluster in clusters:
            await self._controller.delete(RAYCLUSTERS, cluster)
        self._requeue(service, _AGAIN_S)

    async def _make_cluster(self, service: Manifest, name: str) -> Manifest:
        return await self._controller.create(RAYCLUSTERS, _cluster(service, name))

    async def _extend(self, service: Manifest, cluster: Manifest) -> Manifest:
        """Give a cluster the service's spec, sizes and all: KubeRay replaces the object."""
        goal = _cluster(service, cluster["metadata"]["name"])
        metadata = cluster["metadata"] | {name: goal["metadata"][name] for name in ("labels", "annotations")}
        replaced = await self._controller.client.replace(
            RAYCLUSTERS, cluster | {"metadata": metadata, "spec": goal["spec"]}
        )
        self._controller.owned[RAYCLUSTERS].put(replaced)
        return replaced

    async def _show(self, service: Manifest, *findings: Finding, **status: Any) -> None:
        conditions = with_findings(service, *findings, now=now_text())
        if [_kept(condition) for condition in conditions] == [_kept(condition) for condition in conditions_of(service)]:
            conditions = conditions_of(service)
        await self._controller.set_status(service, status | {"conditions": conditions})

    async def _set_finalizers(self, service: Manifest, finalizers: list[str]) -> None:
        """Replace the object, as KubeRay does: a change in between is a conflict, and leads to another reconcile."""
        with suppress(ConflictError, NotFoundError):
            metadata = service["metadata"] | {"finalizers": finalizers}
            replaced = await self._controller.client.replace(RAYSERVICES, service | {"metadata": metadata})
            self._controller.cache.put(replaced)

    def _requeue(self, service: Manifest, delay_s: float) -> None:
        metadata = service["metadata"]
        self._controller.queue.add_after((metadata["namespace"], metadata["name"]), delay_s)


def _cluster(service: Manifest, name: str) -> Manifest:
    metadata, origin = service["metadata"], "ray.io/originated-from-cr"
    spec = service["spec"]["rayClusterConfig"]
    own = {_HASH_ANNOTATION: _hash(spec), _GROUPS_ANNOTATION: str(len(groups(spec)))}
    return {
        "apiVersion": RAYCLUSTERS.api_version,
        "kind": RAYCLUSTERS.kind,
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": (metadata.get("labels") or {}) | {f"{origin}-name": metadata["name"], f"{origin}d": "RayService"},
            "annotations": (metadata.get("annotations") or {}) | own,
            "ownerReferences": [owner_reference(service)],
        },
        "spec": spec,
    }


def _status(active: str | None, pending: str | None) -> Manifest:
    return {
        "serviceStatus": "Running" if active else "",
        "activeServiceStatus": {"rayClusterName": active} if active else _NO_CLUSTER,
        "pendingServiceStatus": {"rayClusterName": pending} if pending else _NO_CLUSTER,
    }


def _name_of(status: Manifest, which: str) -> str | None:
    return (status.get(which) or {}).get("rayClusterName") or None


def _initializing_timeout(service: Manifest) -> str:
    text: str = (service["metadata"].get("annotations") or {}).get(_TIMEOUT_ANNOTATION, "")
    return text


def _is(manifest: Manifest, condition: str) -> bool:
    return any(entry["type"] == condition and entry["status"] == "True" for entry in conditions_of(manifest))


def _kept(condition: Manifest) -> tuple[str, str, str]:
    return condition["type"], condition["status"], condition["reason"]


def _is_serving(cluster: Manifest) -> bool:
    return _is(cluster, HEAD_READY)


def _needs_another(service: Manifest, cluster: Manifest | None) -> bool:
    """Whether a cluster is to be prepared: there is none, or it was made of another spec."""
    if cluster is None:
        return True
    strategy = (service["spec"].get("upgradeStrategy") or {}).get("type")
    return strategy != "None" and _hash_of(cluster) != _hash(service["spec"]["rayClusterConfig"])


def _has_groups_more(service: Manifest, cluster: Manifest) -> bool:
    """Whether the service has what the cluster was made of, and more groups at the end."""
    spec, group_count = service["spec"]["rayClusterConfig"], cluster["metadata"]["annotations"].get(_GROUPS_ANNOTATION)
    if _hash_of(cluster) == _hash(spec) or group_count is None or len(groups(spec)) < int(group_count):
        return False
    return _hash_of(cluster) == _hash(spec | {"workerGroupSpecs": groups(spec)[: int(group_count)]})


def _hash_of(cluster: Manifest) -> str | None:
    spec_hash: str | None = cluster["metadata"]["annotations"].get(_HASH_ANNOTATION)
    return spec_hash


def _hash(spec: Manifest) -> str:
    """A hash of a cluster's spec, without what changes while it runs."""
    head, workers = spec["headGroupSpec"], [without(group, _MUTED_OF_GROUP) for group in groups(spec)]
    return content_hash(
        without(spec, _MUTED)
        | {"headGroupSpec": _without_holds(head), "workerGroupSpecs": [_without_holds(group) for group in workers]}
    )


def _without_holds(group: Manifest) -> Manifest:
    template = group["template"]
    return group | {"template": template | {"spec": without(template["spec"], _MUTED_OF_POD)}}
