"""KubeRay's stand-in: the pods of RayClusters, and for each RayJob a cluster and a submitter.

Follows what KubeRay does with counts: clamping, suspended groups, whole replicas, `workersToDelete` first. No Ray runs:
a pod is a pod. Source of the rules: KubeRay 1.7, `ray-operator/controllers/ray`.
"""

from typing import Any

from slicebus.ambient.clock import random_hex
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS, PODS, RAYCLUSTERS, RAYJOBS
from slicebus.kube.times import now_text
from slicebus.proto.errors import NotFoundError
from slicebus.sandbox.controllers.controller import (
    Controller,
    is_going,
    is_over,
    is_ready,
    owner_reference,
    pod_of,
    surplus_order,
)
from slicebus.sandbox.controllers.ray_gcs import keep_until_clean
from slicebus.slices.jobs.ray import desired_replicas, groups, hosts

Manifest = dict[str, Any]

_OWN_CONTROLLER = (None, "", "ray.io/kuberay-operator")
_AGAIN_S = 1.0
_REPLICA = "ray.io/worker-group-replica-name"


class RayClusterController:
    """Runs RayClusters without a `managedBy` of another controller."""

    def __init__(self, client: KubeClient) -> None:
        self._controller = Controller(client, RAYCLUSTERS, PODS, JOBS)

    async def run(self) -> None:
        """Run RayClusters until cancelled."""
        await self._controller.run(self._reconcile)

    async def _reconcile(self, cluster: Manifest) -> None:
        spec = cluster["spec"]
        if spec.get("managedBy") not in _OWN_CONTROLLER or await keep_until_clean(self._controller, cluster):
            return
        pods = [pod for pod in self._controller.children(PODS, cluster) if not is_over(pod)]
        if spec.get("suspend"):
            for pod in pods:
                await self._controller.delete(PODS, pod)
        else:
            await self._bring_head(cluster, pods)
            for group in groups(spec):
                await self._bring_group(cluster, group, pods)
        pods = [pod for pod in self._controller.children(PODS, cluster) if not is_over(pod)]
        await self._controller.set_status(cluster, _cluster_status(cluster, pods))

    async def _bring_head(self, cluster: Manifest, pods: list[Manifest]) -> None:
        if not any(_label(pod, "ray.io/node-type") == "head" for pod in pods):
            template, name = cluster["spec"]["headGroupSpec"]["template"], cluster["metadata"]["name"]
            labels = _labels(cluster, node_type="head", group="headgroup")
            await self._controller.create(
                PODS, pod_of(template, name=f"{name}-head-{_suffix()}", owner=cluster, labels=labels)
            )

    async def _bring_group(self, cluster: Manifest, group: Manifest, pods: list[Manifest]) -> None:
        """Keep the group's replicas: delete those named for deletion, then the surplus; then create the missing.

        As long as a pod of the group is going KubeRay leaves the group as it is.
        """
        if any(is_going(pod) for pod in pods if _label(pod, "ray.io/group") == group["groupName"]):
            return
        replicas: dict[str, list[Manifest]] = {}
        for pod in pods:
            if _label(pod, "ray.io/group") == group["groupName"]:
                replicas.setdefault(_label(pod, _REPLICA) or pod["metadata"]["name"], []).append(pod)
        named = set((group.get("scaleStrategy") or {}).get("workersToDelete") or ())
        for replica, members in list(replicas.items()):
            if named & {pod["metadata"]["name"] for pod in members}:
                await self._drop(replicas.pop(replica))
        wanted = desired_replicas(group)
        by_value = sorted(replicas, key=lambda replica: min(map(surplus_order, replicas[replica])))
        for replica in by_value[: max(0, len(replicas) - wanted)]:
            await self._drop(replicas[replica])
        for _ in range(wanted - len(replicas)):
            await self._make_replica(cluster, group)

    async def _drop(self, pods: list[Manifest]) -> None:
        for pod in pods:
            await self._controller.delete(PODS, pod)

    async def _make_replica(self, cluster: Manifest, group: Manifest) -> None:
        name, group_name = cluster["metadata"]["name"], group["groupName"]
        replica = f"{group_name}-{_suffix()}"
        for index in range(hosts(group)):
            labels = _labels(cluster, node_type="worker", group=group_name)
            if hosts(group) > 1:
                labels |= {_REPLICA: replica, "ray.io/replica-host-index": str(index)}
            pod_name = f"{name}-{group_name}-worker-{_suffix()}"
            await self._controller.create(PODS, pod_of(group["template"], name=pod_name, owner=cluster, labels=labels))


class RayJobController:
    """Runs RayJobs without a `managedBy` of another controller."""

    def __init__(self, client: KubeClient) -> None:
        self._controller = Controller(client, RAYJOBS, RAYCLUSTERS, JOBS)

    async def run(self) -> None:
        """Run RayJobs until cancelled."""
        await self._controller.run(self._reconcile)

    async def _reconcile(self, job: Manifest) -> None:
        spec, status = job["spec"], job.get("status", {})
        if spec.get("managedBy") not in _OWN_CONTROLLER or "deletionTimestamp" in job["metadata"]:
            return
        clusters, submitters = self._controller.children(RAYCLUSTERS, job), self._controller.children(JOBS, job)
        if status.get("jobDeploymentStatus") in ("Complete", "Failed"):
            for cluster in clusters if spec.get("shutdownAfterJobFinishes") else ():
                await self._controller.delete(RAYCLUSTERS, cluster)
            return
        if spec.get("suspend"):
            await self._suspend(job, clusters, submitters)
            return
        if not clusters:
            try:
                clusters = [await self._make_cluster(job)]
            except NotFoundError:
                # The definition of RayClusters is missing: KubeRay tries again until it is there.
                self._controller.queue.add_after((job["metadata"]["namespace"], job["metadata"]["name"]), _AGAIN_S)
                return
        ready = clusters[0].get("status", {}).get("state") == "ready"
        if ready and not submitters and spec.get("submissionMode", "K8sJobMode") == "K8sJobMode":
            submitters = [await self._make_submitter(job)]
        await self._controller.set_status(job, _job_status(job, clusters[0], submitters, ready=ready))

    async def _suspend(self, job: Manifest, clusters: list[Manifest], submitters: list[Manifest]) -> None:
        for cluster in clusters:
            await self._controller.delete(RAYCLUSTERS, cluster)
        for submitter in submitters:
            await self._controller.delete(JOBS, submitter)
        await self._controller.set_status(job, {"jobDeploymentStatus": "Suspended", "rayClusterName": ""})

    async def _make_cluster(self, job: Manifest) -> Manifest:
        name = job["metadata"]["name"]
        labels = {"ray.io/originated-from-cr-name": name, "ray.io/originated-from-crd": "RayJob"}
        manifest = {
            "apiVersion": RAYCLUSTERS.api_version,
            "kind": RAYCLUSTERS.kind,
            "metadata": {
                "name": f"{name}-{_suffix()}",
                "namespace": job["metadata"]["namespace"],
                "labels": labels,
                "ownerReferences": [owner_reference(job)],
            },
            "spec": job["spec"]["rayClusterSpec"],
        }
        return await self._controller.create(RAYCLUSTERS, manifest)

    async def _make_submitter(self, job: Manifest) -> Manifest:
        manifest = {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {
                "name": job["metadata"]["name"],
                "namespace": job["metadata"]["namespace"],
                "ownerReferences": [owner_reference(job)],
            },
            "spec": {"backoffLimit": 2, "template": job["spec"]["submitterPodTemplate"]},
        }
        return await self._controller.create(JOBS, manifest)


def _labels(cluster: Manifest, *, node_type: str, group: str) -> dict[str, str]:
    name = cluster["metadata"]["name"]
    return {
        "ray.io/is-ray-node": "yes",
        "ray.io/cluster": name,
        "ray.io/node-type": node_type,
        "ray.io/group": group,
        "ray.io/identifier": f"{name}-{node_type}",
    }


def _cluster_status(cluster: Manifest, pods: list[Manifest]) -> Manifest:
    spec = cluster["spec"]
    workers = [pod for pod in pods if _label(pod, "ray.io/node-type") == "worker"]
    desired = sum(desired_replicas(group) * hosts(group) for group in groups(spec))
    status: Manifest = {
        "desiredWorkerReplicas": desired,
        "availableWorkerReplicas": sum(pod.get("status", {}).get("phase") == "Running" for pod in workers),
        "readyWorkerReplicas": sum(map(is_ready, workers)),
        "minWorkerReplicas": sum((group.get("minReplicas") or 0) * hosts(group) for group in groups(spec)),
        "maxWorkerReplicas": sum((group.get("maxReplicas") or 0) * hosts(group) for group in groups(spec)),
        "observedGeneration": cluster["metadata"]["generation"],
    }
    if spec.get("suspend"):
        return status | {"state": "suspended"}
    return status | {"state": "ready"} if pods and all(map(is_ready, pods)) else status


def _job_status(job: Manifest, cluster: Manifest, submitters: list[Manifest], *, ready: bool) -> Manifest:
    status: Manifest = {
        "rayClusterName": cluster["metadata"]["name"],
        "jobId": job.get("status", {}).get("jobId") or f"{job['metadata']['name']}-{_suffix()}",
        "jobDeploymentStatus": "Running" if ready and submitters else "Initializing",
        "observedGeneration": job["metadata"]["generation"],
    }
    if not (ready or job.get("status", {}).get("jobDeploymentStatus") == "Running"):
        return status
    ended = {entry["type"] for entry in _conditions(submitters) if entry["status"] == "True"}
    status["jobStatus"] = "RUNNING"
    status["jobDeploymentStatus"] = "Running"
    if "Complete" in ended:
        status |= {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete", "endTime": now_text()}
    elif "Failed" in ended:
        status |= {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "endTime": now_text()}
    return status


def _conditions(submitters: list[Manifest]) -> list[Manifest]:
    return [entry for job in submitters for entry in job.get("status", {}).get("conditions") or ()]


def _label(pod: Manifest, name: str) -> str:
    value: str = pod["metadata"].get("labels", {}).get(name, "")
    return value


def _suffix() -> str:
    return random_hex(3)[:5]
