"""What a cluster has of TrainJobs: their definition, and a stand-in for their controller."""

from typing import Any

from slicebus.ambient.clock import random_hex
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import PODS
from slicebus.kube.times import now_text
from slicebus.sandbox.controllers.controller import Controller, is_going, is_over, pod_of, surplus_order
from slicebus.slices.api import kueue
from support.train_job.kind import NAME_LABEL, TrainJob

Manifest = dict[str, Any]

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: Manifest = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": TrainJob.resource.definition},
    "spec": {
        "group": TrainJob.resource.group,
        "scope": "Namespaced",
        "names": {"kind": "TrainJob", "listKind": "TrainJobList", "plural": "trainjobs", "singular": "trainjob"},
        "versions": [
            {
                "name": TrainJob.resource.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}},
            }
        ],
    },
}


class TrainJobController:
    """Keeps as many pods as a TrainJob has replicas; it is complete when all of them have succeeded."""

    def __init__(self, client: KubeClient) -> None:
        self._controller = Controller(client, TrainJob.resource, PODS)

    async def run(self) -> None:
        await self._controller.run(self._reconcile)

    async def _reconcile(self, job: Manifest) -> None:
        if job["spec"].get("managedBy") == kueue.MANAGED_BY_MULTIKUEUE or "deletionTimestamp" in job["metadata"]:
            return
        pods = [pod for pod in self._controller.children(PODS, job) if not is_going(pod)]
        wanted = 0 if job["spec"].get("suspend") else job["spec"]["replicas"]
        for pod in sorted(pods, key=surplus_order)[: max(0, len(pods) - wanted)]:
            await self._controller.delete(PODS, pod)
        for _ in range(wanted - len(pods)):
            name = f"{job['metadata']['name']}-{random_hex(3)[:5]}"
            labels = {NAME_LABEL: job["metadata"]["name"]}
            await self._controller.create(PODS, pod_of(job["spec"]["template"], name=name, owner=job, labels=labels))
        await self._controller.set_status(job, _status(job, [pod for pod in pods if not is_over(pod)], pods))


def _status(job: Manifest, active: list[Manifest], pods: list[Manifest]) -> Manifest:
    status: Manifest = {"active": len(active)}
    if pods and not active and not job["spec"].get("suspend") and "conditions" not in job.get("status", {}):
        complete = {"type": "Complete", "status": "True", "reason": "Trained", "message": "all pods have succeeded"}
        status["conditions"] = [complete | {"lastTransitionTime": now_text()}]
    return status
