"""KubeRay's stand-in for RayClusters: a head, and the pods of each worker group. No Ray runs: a pod is a pod.

Deletes and creates what KubeRay would, and as late: a group waits until its earlier deletes and creates are seen.
tests/integration/ray holds both to the same cases. Source of the rules: KubeRay 1.7, `ray-operator/controllers/ray`.
"""

from contextlib import suppress
from typing import Any

from slicebus.ambient.clock import randomness
from slicebus.kube.cache import Change
from slicebus.kube.client import KubeClient
from slicebus.kube.events import EventRecorder
from slicebus.kube.resources import JOBS, PODS, RAYCLUSTERS
from slicebus.kube.times import now_text
from slicebus.proto.errors import ForbiddenError, NotFoundError, UnavailableError
from slicebus.sandbox.controllers.controller import Controller, is_going, is_over, is_ready, pod_of
from slicebus.sandbox.controllers.ray_expectations import CREATE_S, HEAD, Expectations
from slicebus.sandbox.controllers.ray_gcs import keep_until_clean
from slicebus.sandbox.controllers.ray_pods import (
    CLUSTER_LABEL,
    GROUP_LABEL,
    NODE_TYPE_LABEL,
    Labels,
    cluster_key,
    is_own,
    is_unhealthy,
    label,
    next_step,
    suffix,
)
from slicebus.slices.api.conditions import Finding, conditions_of, has_finding, with_findings
from slicebus.slices.jobs.ray import desired_replicas, groups, hosts, waiting_for_gcs

Manifest = dict[str, Any]

HEAD_READY = "HeadPodReady"
"""The condition that tells KubeRay that a RayService may deploy applications."""
_HEAD_GROUP = "headgroup"
_AGAIN_S = 1.0


class RayClusterController:
    """Runs RayClusters without a `managedBy` of another controller.

    `replica_labels`: whether pods are labelled with their replica, and replicas of several hosts stay whole, as since
    KubeRay 1.6 (`RayMultiHostIndexing`). Without it, the stand-in does as KubeRay 1.4 and 1.5.
    """

    def __init__(self, client: KubeClient, *, replica_labels: bool = True) -> None:
        self._controller = Controller(client, RAYCLUSTERS, PODS, JOBS, indexes={"cluster": cluster_key})
        self._pods = self._controller.owned[PODS]
        self._expectations = Expectations(self._pods)
        self._replica_labels = replica_labels
        self._events = EventRecorder(client, component="raycluster-controller")

    async def run(self) -> None:
        """Run RayClusters until cancelled."""
        self._controller.cache.subscribe(self._forget)
        await self._controller.run(self._reconcile, events=self._events)

    async def _reconcile(self, cluster: Manifest) -> None:
        if not is_own(cluster["spec"]) or await keep_until_clean(self._controller, cluster):
            return
        if problem := _problem(cluster["spec"]):
            # It does not look again before the cluster changes.
            metadata = cluster["metadata"]
            note = f"The RayCluster spec is invalid {metadata['namespace']}/{metadata['name']}: {problem}"
            self._events.record(cluster, reason="InvalidRayClusterSpec", note=note, warning=True)
            return
        if cluster["spec"].get("suspend"):
            await self._delete_all(self._pods_of(cluster))
        elif not await self._bring_head(cluster) or not await self._bring_groups(cluster):
            self._requeue(cluster, _AGAIN_S)
        pods = [pod for pod in self._controller.children(PODS, cluster) if not is_over(pod)]
        status, present = _cluster_status(cluster, pods), cluster.get("status", {})
        # KubeRay does not write a newer generation where nothing else has changed.
        if any(present.get(name) != value for name, value in status.items() if name != "observedGeneration"):
            await self._controller.set_status(cluster, status)

    async def _bring_head(self, cluster: Manifest) -> bool:
        """Create the head, or delete an unhealthy one. Returns whether the pass goes on to the groups: not where the
        head was deleted, or there are several."""
        heads = [pod for pod in self._pods_of(cluster) if label(pod, NODE_TYPE_LABEL) == "head"]
        if not self._are_met(cluster, HEAD):
            return True
        if not heads:
            template, name = cluster["spec"]["headGroupSpec"]["template"], cluster["metadata"]["name"]
            labels = _labels(cluster, node_type="head", group=_HEAD_GROUP)
            pod = pod_of(template, name=f"{name}-head-{suffix()}", owner=cluster, labels=labels)
            await self._create(cluster, HEAD, pod)
        elif is_unhealthy(heads[0]):
            await self._delete(cluster, HEAD, heads[0]["metadata"]["name"])
            return False
        return len(heads) <= 1

    async def _bring_groups(self, cluster: Manifest) -> bool:
        """Step through the groups. Returns whether every group had its turn: KubeRay ends a pass at the first group
        with something broken."""
        for group in groups(cluster["spec"]):
            name = group["groupName"]
            if not self._are_met(cluster, name):
                continue
            pods = [pod for pod in self._pods_of(cluster) if label(pod, GROUP_LABEL) == name]
            if group.get("suspend"):
                await self._delete_all(pods)
                continue
            # KubeRay takes its surplus in no order.
            randomness().shuffle(pods)
            step = next_step(cluster["spec"], group, pods, replica_labels=self._replica_labels)
            for pod_name in step.delete:
                await self._delete(cluster, name, pod_name)
            for labels in step.create:
                await self._create(cluster, name, _worker(cluster, group, labels))
            if step.ends_pass:
                return False
        return True

    def _pods_of(self, cluster: Manifest) -> list[Manifest]:
        """The cluster's pods as the watch has shown them, sorted by name, with those of an earlier cluster of the same
        name."""
        metadata = cluster["metadata"]
        pods = self._pods.by("cluster", f"{metadata['namespace']}/{metadata['name']}")
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def _are_met(self, cluster: Manifest, group: str) -> bool:
        met = self._expectations.are_met(cluster["metadata"]["uid"], group)
        if not met:
            self._requeue(cluster, CREATE_S)
        return met

    async def _create(self, cluster: Manifest, group: str, pod: Manifest) -> None:
        """Create a pod; the cache has it when the watch brings it, as KubeRay's has."""
        metadata = pod["metadata"]
        try:
            await self._controller.client.create(PODS, pod, field_manager="standin")
        except ForbiddenError as error:
            type = "Head" if group == HEAD else "Worker"
            note = f"Failed to create {type.lower()} Pod {metadata['namespace']}/{metadata['name']}, {error}"
            self._events.record(cluster, reason=f"FailedToCreate{type}Pod", note=note, warning=True)
            # KubeRay tries again: a quota may be raised.
            raise UnavailableError(str(error)) from error
        self._expectations.expect_create(cluster["metadata"]["uid"], group, (metadata["namespace"], metadata["name"]))

    async def _delete(self, cluster: Manifest, group: str, pod_name: str) -> None:
        namespace, uid = cluster["metadata"]["namespace"], cluster["metadata"]["uid"]
        with suppress(NotFoundError):
            await self._controller.client.delete(PODS, pod_name, namespace)
            self._expectations.expect_delete(uid, group, (namespace, pod_name))

    async def _delete_all(self, pods: list[Manifest]) -> None:
        """Delete the pods of what is suspended. KubeRay expects nothing of this."""
        for pod in pods:
            if not is_going(pod):
                with suppress(NotFoundError):
                    await self._controller.client.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])

    def _requeue(self, cluster: Manifest, delay_s: float) -> None:
        metadata = cluster["metadata"]
        self._controller.queue.add_after((metadata["namespace"], metadata["name"]), delay_s)

    def _forget(self, change: Change) -> None:
        if change.new is None and change.old is not None:
            self._expectations.forget(change.old["metadata"]["uid"])


def _worker(cluster: Manifest, group: Manifest, labels: Labels) -> Manifest:
    name = f"{cluster['metadata']['name']}-{group['groupName']}-worker-{suffix()}"
    labels = _labels(cluster, node_type="worker", group=group["groupName"]) | labels
    return pod_of(waiting_for_gcs(group["template"]), name=name, owner=cluster, labels=labels)


def _labels(cluster: Manifest, *, node_type: str, group: str) -> Labels:
    name = cluster["metadata"]["name"]
    return {
        "ray.io/is-ray-node": "yes",
        CLUSTER_LABEL: name,
        NODE_TYPE_LABEL: node_type,
        GROUP_LABEL: group,
        "ray.io/identifier": f"{name}-{node_type}",
    }


def _conditions(cluster: Manifest, pods: list[Manifest]) -> list[Manifest]:
    ready = any(label(pod, NODE_TYPE_LABEL) == "head" and is_ready(pod) for pod in pods)
    finding = Finding(HEAD_READY, ready, "HeadPodRunningAndReady" if ready else "HeadPodNotFound", "")
    return conditions_of(cluster) if has_finding(cluster, finding) else with_findings(cluster, finding, now=now_text())


def _problem(spec: Manifest) -> str:
    """Why the operator refuses a cluster; empty for one that it takes. The gate for `tlsOptions` is off."""
    if "tlsOptions" in spec:
        return "no tlsOptions here"
    for group in groups(spec):
        least, most = group.get("minReplicas"), group.get("maxReplicas")
        if least is not None and most is not None and least > most:
            return f"worker group {group['groupName']} has minReplicas {least} greater than maxReplicas {most}"
    return ""


def _cluster_status(cluster: Manifest, pods: list[Manifest]) -> Manifest:
    spec = cluster["spec"]
    workers = [pod for pod in pods if label(pod, NODE_TYPE_LABEL) == "worker"]
    desired = sum(desired_replicas(group) * hosts(group) for group in groups(spec))
    status: Manifest = {
        "desiredWorkerReplicas": desired,
        "availableWorkerReplicas": sum(pod.get("status", {}).get("phase") == "Running" for pod in workers),
        "readyWorkerReplicas": sum(map(is_ready, workers)),
        "minWorkerReplicas": sum((group.get("minReplicas") or 0) * hosts(group) for group in groups(spec)),
        "maxWorkerReplicas": sum((group.get("maxReplicas") or 0) * hosts(group) for group in groups(spec)),
        "observedGeneration": cluster["metadata"]["generation"],
        "conditions": _conditions(cluster, pods),
    }
    if spec.get("suspend"):
        return status | {"state": "suspended"}
    return status | {"state": "ready"} if pods and all(map(is_ready, pods)) else status
