"""The base of the stand-ins: caches of the watched resources, a work queue, and one handler."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from slicebus.ambient.cancellation import TaskGroup
from slicebus.kube.cache import Cache, Change, Indexer
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.events import EventRecorder
from slicebus.kube.reflector import Reflector
from slicebus.kube.resources import PODS, Resource
from slicebus.kube.workqueue import WorkQueue
from slicebus.proto.errors import ConflictError, NotFoundError

Manifest = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""


def owner_uids(manifest: Manifest) -> Iterable[str]:
    """The UIDs of an object's owners; the index by which children are found."""
    return [owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or ()]


class Controller:
    """Reconciles objects of one resource whenever they or their children change."""

    def __init__(
        self, client: KubeClient, resource: Resource, *owned: Resource, indexes: Mapping[str, Indexer] | None = None
    ) -> None:
        """`indexes` are further indexes of the owned objects, beside the one by their owners."""
        self.client = client
        self.resource = resource
        self.cache = Cache()
        self.owned = {other: Cache(indexes={"owner": owner_uids, **(indexes or {})}) for other in owned}
        self.queue: WorkQueue[Key] = WorkQueue(f"standin:{resource.plural}")

    async def run(
        self, handler: Callable[[Manifest], Awaitable[None]], *, workers: int = 4, events: EventRecorder | None = None
    ) -> None:
        """Reconcile objects, and write `events`, until cancelled."""

        async def reconcile(key: Key) -> None:
            manifest = self.cache.get(*key)
            if manifest is not None:
                await handler(manifest)

        async with TaskGroup() as group:
            if events is not None:
                group.create_task(events.run(), name="events")
            for resource, cache in [(self.resource, self.cache), *self.owned.items()]:
                group.create_task(Reflector(self.client, resource, cache).run(), name=f"standin:{resource.plural}")
            for cache in [self.cache, *self.owned.values()]:
                await cache.synced.wait()
            self.cache.subscribe(self._changed)
            for cache in self.owned.values():
                cache.subscribe(self._child_changed)
            name = f"standin:{self.resource.plural}:reconcile"
            group.create_task(self.queue.run(reconcile, workers=workers), name=name)

    def children(self, resource: Resource, owner: Manifest) -> list[Manifest]:
        """The objects that an object owns, sorted by name."""
        children = self.owned[resource].by("owner", owner["metadata"]["uid"])
        return sorted(children, key=lambda manifest: str(manifest["metadata"]["name"]))

    async def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Create a child; the cache has it at once."""
        created = await self.client.create(resource, manifest, field_manager="standin")
        self.owned[resource].put(created)
        return created

    async def delete(self, resource: Resource, manifest: Manifest) -> None:
        """Delete a child. A pod with a node stays until the kubelet reports that it has ended."""
        metadata = manifest["metadata"]
        with suppress(NotFoundError, ConflictError):
            await self.client.delete(resource, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        if not metadata.get("finalizers") and not manifest["spec"].get("nodeName"):
            self.owned[resource].remove(manifest)

    async def set_status(self, manifest: Manifest, status: Manifest) -> None:
        """Write the status where it has changed."""
        present, metadata = manifest.get("status", {}), manifest["metadata"]
        if all(present.get(name) == value for name, value in status.items()):
            return
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        patched = await self.client.patch(
            self.resource, metadata["name"], metadata["namespace"], MergePatch(body), subresource="status"
        )
        self.cache.put(patched)

    def _changed(self, change: Change) -> None:
        manifest = change.new or change.old
        if manifest is not None:
            self.queue.add((manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]))

    def _child_changed(self, change: Change) -> None:
        child = change.new or change.old
        for owner in child["metadata"].get("ownerReferences") or () if child else ():
            if owner["kind"] == self.resource.kind:
                assert child is not None
                self.queue.add((child["metadata"].get("namespace", ""), owner["name"]))


def owner_reference(manifest: Manifest) -> Manifest:
    """A controller reference to an object."""
    metadata = manifest["metadata"]
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_of(template: Manifest, *, name: str, owner: Manifest, labels: dict[str, str]) -> Manifest:
    """A pod from a template, owned by an object."""
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": (metadata.get("labels") or {}) | labels,
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {"restartPolicy": "Never"} | template["spec"],
    }


def is_gated(pod: Manifest) -> bool:
    """Whether any gate holds a pod."""
    return bool(pod["spec"].get("schedulingGates"))


def is_over(pod: Manifest) -> bool:
    """Whether a pod has succeeded or failed."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_going(pod: Manifest) -> bool:
    """Whether a pod is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def is_ready(pod: Manifest) -> bool:
    """Whether a pod is ready."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def surplus_order(pod: Manifest) -> tuple[bool, bool, str, str]:
    """The sort key of pods to delete first: gated ones, then not ready ones, then the youngest."""
    created = pod["metadata"].get("creationTimestamp", "")
    inverted = "".join(chr(0x10FFFF - ord(character)) for character in created)
    return not is_gated(pod), is_ready(pod), inverted, pod["metadata"]["name"]
