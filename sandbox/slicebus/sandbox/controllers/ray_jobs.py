"""KubeRay's stand-in for RayJobs: each has a RayCluster of its own and, once that is ready, a submitter.

Source of the rules: KubeRay 1.7, `ray-operator/controllers/ray/rayjob_controller.go`.
"""

import math
from datetime import datetime
from typing import Any

from slicebus.ambient.clock import now
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS, RAYCLUSTERS, RAYJOBS
from slicebus.kube.times import now_text
from slicebus.proto.errors import NotFoundError
from slicebus.sandbox.controllers.controller import Controller, owner_reference
from slicebus.sandbox.controllers.ray_pods import is_own, suffix

Manifest = dict[str, Any]

_AGAIN_S = 1.0
_NOTHING_YET: Manifest = {"rayClusterName": "", "jobId": "", "jobStatus": "", "startTime": None, "endTime": None}


class RayJobController:
    """Runs RayJobs without a `managedBy` of another controller."""

    def __init__(self, client: KubeClient) -> None:
        self._controller = Controller(client, RAYJOBS, RAYCLUSTERS, JOBS)

    async def run(self) -> None:
        """Run RayJobs until cancelled."""
        await self._controller.run(self._reconcile)

    async def _reconcile(self, job: Manifest) -> None:
        spec, status = job["spec"], job.get("status", {})
        if not is_own(spec) or "deletionTimestamp" in job["metadata"]:
            return
        clusters, submitters = self._controller.children(RAYCLUSTERS, job), self._controller.children(JOBS, job)
        if status.get("jobDeploymentStatus") in ("Complete", "Failed"):
            for cluster in clusters if spec.get("shutdownAfterJobFinishes") else ():
                await self._controller.delete(RAYCLUSTERS, cluster)
            return
        if status.get("jobDeploymentStatus") == "Retrying":
            await self._clear(clusters, submitters)
            if not (clusters or submitters):
                await self._controller.set_status(job, _NOTHING_YET | {"jobDeploymentStatus": ""})
            return
        if spec.get("suspend"):
            await self._clear(clusters, submitters)
            await self._controller.set_status(job, {"jobDeploymentStatus": "Suspended", "rayClusterName": ""})
            return
        if not clusters:
            try:
                clusters = [await self._make_cluster(job)]
            except NotFoundError:
                # The definition of RayClusters is missing: KubeRay tries again until it is there.
                self._controller.queue.add_after((job["metadata"]["namespace"], job["metadata"]["name"]), _AGAIN_S)
                return
        left_s = _deadline_s(job)
        if left_s <= 0:
            # Neither waits for the submitter's pod nor ends it.
            past = {"reason": "DeadlineExceeded", "message": "The RayJob has passed the activeDeadlineSeconds"}
            await self._controller.set_status(job, past | {"jobDeploymentStatus": "Failed", "endTime": now_text()})
            return
        if left_s < math.inf:
            self._controller.queue.add_after((job["metadata"]["namespace"], job["metadata"]["name"]), left_s)
        ready = clusters[0].get("status", {}).get("state") == "ready"
        if ready and not submitters and spec.get("submissionMode", "K8sJobMode") == "K8sJobMode":
            submitters = [await self._make_submitter(job)]
        await self._controller.set_status(job, _job_status(job, clusters[0], submitters, ready=ready))

    async def _clear(self, clusters: list[Manifest], submitters: list[Manifest]) -> None:
        for cluster in clusters:
            await self._controller.delete(RAYCLUSTERS, cluster)
        for submitter in submitters:
            await self._controller.delete(JOBS, submitter)

    async def _make_cluster(self, job: Manifest) -> Manifest:
        name = job["metadata"]["name"]
        labels = {"ray.io/originated-from-cr-name": name, "ray.io/originated-from-crd": "RayJob"}
        manifest = {
            "apiVersion": RAYCLUSTERS.api_version,
            "kind": RAYCLUSTERS.kind,
            "metadata": {
                "name": f"{name}-{suffix()}",
                "namespace": job["metadata"]["namespace"],
                "labels": labels,
                "ownerReferences": [owner_reference(job)],
            },
            "spec": job["spec"]["rayClusterSpec"],
        }
        return await self._controller.create(RAYCLUSTERS, manifest)

    async def _make_submitter(self, job: Manifest) -> Manifest:
        tries = {"backoffLimit": 2} | (job["spec"].get("submitterConfig") or {})
        manifest = {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {
                "name": job["metadata"]["name"],
                "namespace": job["metadata"]["namespace"],
                "ownerReferences": [owner_reference(job)],
            },
            "spec": tries | {"template": job["spec"]["submitterPodTemplate"]},
        }
        return await self._controller.create(JOBS, manifest)


def _job_status(job: Manifest, cluster: Manifest, submitters: list[Manifest], *, ready: bool) -> Manifest:
    status: Manifest = {
        "rayClusterName": cluster["metadata"]["name"],
        "jobId": job.get("status", {}).get("jobId") or f"{job['metadata']['name']}-{suffix()}",
        "jobDeploymentStatus": "Running" if ready and submitters else "Initializing",
        "observedGeneration": job["metadata"]["generation"],
        "startTime": job.get("status", {}).get("startTime") or now_text(),
    }
    if not (ready or job.get("status", {}).get("jobDeploymentStatus") == "Running"):
        return status
    ended = {entry["type"] for entry in _conditions(submitters) if entry["status"] == "True"}
    status["jobStatus"] = "RUNNING"
    status["jobDeploymentStatus"] = "Running"
    if "Complete" in ended:
        status |= {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete", "endTime": now_text()}
    elif "Failed" in ended:
        failed = job.get("status", {}).get("failed", 0) + 1
        deployment = "Retrying" if failed <= job["spec"].get("backoffLimit", 0) else "Failed"
        status |= {"jobStatus": "FAILED", "jobDeploymentStatus": deployment, "endTime": now_text(), "failed": failed}
    return status


def _deadline_s(job: Manifest) -> float:
    """How long the job may still run; infinite without a deadline."""
    deadline_s, started = job["spec"].get("activeDeadlineSeconds"), job.get("status", {}).get("startTime")
    if deadline_s is None or not started:
        return math.inf
    return float(deadline_s) - (now() - datetime.fromisoformat(started)).total_seconds()


def _conditions(submitters: list[Manifest]) -> list[Manifest]:
    return [entry for job in submitters for entry in job.get("status", {}).get("conditions") or ()]
