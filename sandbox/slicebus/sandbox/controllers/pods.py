"""The scheduler's and the kubelet's stand-in: a pod without gates gets a node, runs, and ends if it has a run time.

One that fits no node, whose image cannot be pulled, or that crashes says so as Kubernetes does.
"""

import asyncio
from contextlib import suppress
from typing import Any

from slicebus.ambient.cancellation import TaskGroup
from slicebus.kube.cache import Cache, Change
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.reflector import Reflector
from slicebus.kube.resources import NODES, PODS
from slicebus.kube.times import now_text
from slicebus.kube.workqueue import WorkQueue
from slicebus.proto.errors import ConflictError, NotFoundError
from slicebus.sandbox.controllers.controller import is_gated, is_going, is_over

Manifest = dict[str, Any]
Key = tuple[str, str]

RUN_SECONDS_ANNOTATION = "slicebus.dev/run-seconds"
"""On a pod: its run time in seconds before it succeeds. Without it a pod runs until it is deleted."""
EXIT_CODE_ANNOTATION = "slicebus.dev/exit-code"
"""On a pod: the exit code with which its containers end as often as they are started."""
NOWHERE = "registry.invalid"
"""A registry that cannot be reached: no name under `invalid` is ever resolved (RFC 2606)."""
_STUCK_S = 1.0


class PodRunner:
    """Runs every pod of a cluster. `start_s`: seconds from ungating to readiness; `end_s`: from deletion to the end."""

    def __init__(self, client: KubeClient, *, start_s: float = 0.1, end_s: float = 0.1) -> None:
        self._client = client
        self.starts = True
        """Whether pods that have a node get ready. While they do not, they are checked again and again."""
        self._start_s = start_s
        self._end_s = end_s
        self._pods, self._nodes = Cache(), Cache()
        self._ends: dict[str, float] = {}
        """When each pod with a run time ends, by UID, in the loop's time."""
        self._killed: dict[str, float] = {}
        """When each pod that is being deleted ends, by UID, in the loop's time."""
        self._queue: WorkQueue[Key] = WorkQueue("standin:pods")

    async def run(self) -> None:
        """Run pods until cancelled."""
        async with TaskGroup() as group:
            for resource, cache in ((PODS, self._pods), (NODES, self._nodes)):
                group.create_task(Reflector(self._client, resource, cache).run(), name=f"standin:{resource.plural}")
            await self._pods.synced.wait()
            await self._nodes.synced.wait()
            self._pods.subscribe(self._changed)
            self._nodes.subscribe(self._try_again)
            group.create_task(self._queue.run(self._reconcile, workers=8), name="standin:pods:reconcile")

    def _changed(self, change: Change) -> None:
        if change.new is not None:
            metadata = change.new["metadata"]
            self._queue.add((metadata["namespace"], metadata["name"]))

    def _try_again(self, _: Change) -> None:
        """Try pods again that fitted no node."""
        for pod in self._pods.all():
            if not pod["spec"].get("nodeName"):
                self._queue.add((pod["metadata"]["namespace"], pod["metadata"]["name"]))

    async def _reconcile(self, key: Key) -> None:
        pod = self._pods.get(*key)
        if pod is None or is_gated(pod) or (is_over(pod) and not is_going(pod)):
            return
        if is_going(pod):
            await self._end(key, pod)
        elif not pod["spec"].get("nodeName"):
            node = self._node_for(pod)
            if node is not None:
                await self._patch(pod, {"spec": {"nodeName": node}})
                self._queue.add_after(key, self._start_s)
            elif (status := _unschedulable(pod, len(self._nodes))) is not None:
                await self._patch(pod, {"status": status}, subresource="status")
        elif pod["status"]["phase"] == "Pending" and not self.starts:
            self._queue.add_after(key, _STUCK_S)
        elif pod["status"]["phase"] == "Pending" and (failing := _failing(pod)):
            await self._fail(key, pod, failing)
        elif pod["status"]["phase"] == "Pending":
            await self._patch(pod, {"status": _running(pod)}, subresource="status")
        else:
            await self._end_in_time(key, pod)

    async def _fail(self, key: Key, pod: Manifest, failing: list[Manifest]) -> None:
        """Say why containers do not run, and after a moment that the kubelet pauses."""
        if pod["status"].get("containerStatuses") == failing:
            return
        await self._patch(pod, {"status": {"containerStatuses": failing}}, subresource="status")
        self._queue.add_after(key, _STUCK_S)

    async def _end(self, key: Key, pod: Manifest) -> None:
        """Delete a pod at once when its containers have ended."""
        loop, metadata = asyncio.get_running_loop(), pod["metadata"]
        ends_at = self._killed.setdefault(metadata["uid"], loop.time() + self._end_s)
        if loop.time() < ends_at:
            self._queue.add_after(key, ends_at - loop.time())
            return
        self._killed.pop(metadata["uid"])
        with suppress(NotFoundError, ConflictError):
            name, namespace = metadata["name"], metadata["namespace"]
            await self._client.delete(PODS, name, namespace, uid=metadata["uid"], grace_s=0)

    async def _end_in_time(self, key: Key, pod: Manifest) -> None:
        run_s = pod["metadata"].get("annotations", {}).get(RUN_SECONDS_ANNOTATION)
        if run_s is None:
            return
        loop = asyncio.get_running_loop()
        uid = pod["metadata"]["uid"]
        ends_at = self._ends.setdefault(uid, loop.time() + float(run_s))
        if loop.time() < ends_at:
            self._queue.add_after(key, ends_at - loop.time())
            return
        self._ends.pop(uid, None)
        await self._patch(pod, {"status": {"phase": "Succeeded", "conditions": []}}, subresource="status")

    def _node_for(self, pod: Manifest) -> str | None:
        """The first node that matches the pod's node selector. It ignores free capacity: the quota bounds the pods."""
        selector = pod["spec"].get("nodeSelector", {}).items()
        for node in sorted(self._nodes.all(), key=lambda node: str(node["metadata"]["name"])):
            if selector <= node["metadata"].get("labels", {}).items():
                return str(node["metadata"]["name"])
        return None

    async def _patch(self, pod: Manifest, body: Manifest, *, subresource: str = "") -> None:
        metadata = pod["metadata"]
        with suppress(NotFoundError):
            patched = await self._client.patch(
                PODS, metadata["name"], metadata["namespace"], MergePatch(body), subresource=subresource
            )
            self._pods.put(patched)


def _running(pod: Manifest) -> Manifest:
    now = now_text()
    conditions = [
        {"type": type, "status": "True", "lastTransitionTime": now}
        for type in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    left = {"containerStatuses": None} if pod["status"].get("containerStatuses") else {}
    return {"phase": "Running", "startTime": now, "conditions": conditions, **left}


def _unschedulable(pod: Manifest, nodes: int) -> Manifest | None:
    """What the scheduler says of a pod that fits no node; None where it has said that."""
    message = (
        f"0/{nodes} nodes are available: {nodes} node(s) didn't match Pod's node affinity/selector. "
        f"preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
        if nodes
        else "no nodes available to schedule pods"
    )
    shown = [each for each in pod["status"].get("conditions") or () if each["type"] == "PodScheduled"]
    if any(each.get("message") == message for each in shown):
        return None
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [said | {"lastTransitionTime": now_text()}]}


def _failing(pod: Manifest) -> list[Manifest]:
    """The statuses of containers that cannot run: what the kubelet says next."""
    code = pod["metadata"].get("annotations", {}).get(EXIT_CODE_ANNOTATION)
    containers = pod["spec"]["containers"]
    if code is not None:
        ended = {"terminated": {"exitCode": int(code), "reason": "Error"}}
        waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}
        return [_status(each, waits) | {"restartCount": 2, "lastState": ended} for each in containers]
    if not any(each["image"].startswith(NOWHERE) for each in containers):
        return []
    said = pod["status"].get("containerStatuses")
    reason, text = ("ImagePullBackOff", 'Back-off pulling image "{}"') if said else ("ErrImagePull", "{}: no such host")
    states = ((each, {"reason": reason, "message": text.format(each["image"])}) for each in containers)
    return [_status(each, {"waiting": state}) for each, state in states]


def _status(container: Manifest, state: Manifest) -> Manifest:
    fixed = {"imageID": "", "ready": False, "restartCount": 0, "started": False}
    return {"name": container["name"], "image": container["image"], **fixed, "state": state}
