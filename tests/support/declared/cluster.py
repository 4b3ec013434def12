"""What a cluster has of JobSets and LeaderWorkerSets: definitions of our own writing, and small stand-ins for their
controllers. They make the pods themselves, where the real ones make Jobs and StatefulSets that do."""

from collections import defaultdict
from contextlib import suppress
from typing import Any

from slicebus.ambient.clock import random_hex
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import CRDS, PODS
from slicebus.kube.times import now_text
from slicebus.proto.errors import NotFoundError
from slicebus.sandbox.controllers.controller import Controller, is_going, is_over, pod_of, surplus_order
from slicebus.slices.api import kueue
from slicebus.slices.api.resource import Resource
from support.waiting import eventually

Manifest = dict[str, Any]

JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
GROUPS = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
_OPEN: Manifest = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_NUMBER: Manifest = {"type": "integer"}
_TEXT: Manifest = {"type": "string"}
_CONDITIONS: Manifest = {"type": "array", "items": _OPEN}


def _object(**properties: Manifest) -> Manifest:
    return {"type": "object", "properties": properties}


_JOBSET = _object(
    suspend={"type": "boolean"},
    managedBy=_TEXT,
    ttlSecondsAfterFinished=_NUMBER,
    replicatedJobs={
        "type": "array",
        "items": _object(
            name=_TEXT,
            replicas=_NUMBER,
            template=_object(spec=_object(parallelism=_NUMBER, completions=_NUMBER, template=_OPEN)),
        ),
    },
)
_GROUPS = _object(
    replicas=_NUMBER, leaderWorkerTemplate=_object(size=_NUMBER, leaderTemplate=_OPEN, workerTemplate=_OPEN)
)


def definitions() -> list[Manifest]:
    """Both definitions."""
    return [
        _definition(JOBSETS, _JOBSET, _object(conditions=_CONDITIONS, active=_NUMBER)),
        _definition(GROUPS, _GROUPS, _object(conditions=_CONDITIONS, readyReplicas=_NUMBER)),
    ]


async def undefine(client: KubeClient) -> None:
    """Take both away, and wait until they have gone: a server needs a moment."""
    for definition in definitions():
        name = definition["metadata"]["name"]
        with suppress(NotFoundError):
            await client.delete(CRDS, name)

        async def gone(name: str = name) -> bool:
            return name not in {found["metadata"]["name"] for found in (await client.list(CRDS)).items}

        await eventually(gone, f"{name} has gone")


def _definition(resource: Resource, spec: Manifest, status: Manifest) -> Manifest:
    kind = resource.kind
    names = {"kind": kind, "listKind": f"{kind}List", "plural": resource.plural, "singular": kind.lower()}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": _object(spec=spec, status=status)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": resource.definition,
            # The groups of the Kubernetes project ask for it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


class JobSetController:
    """Keeps the pods of each replica of each replicated job; it is complete when all of them have succeeded."""

    def __init__(self, client: KubeClient) -> None:
        self._controller = Controller(client, JOBSETS, PODS)

    async def run(self) -> None:
        await self._controller.run(self._reconcile)

    async def _reconcile(self, job: Manifest) -> None:
        if job["spec"].get("managedBy") == kueue.MANAGED_BY_MULTIKUEUE or "deletionTimestamp" in job["metadata"]:
            return
        name, wanted = job["metadata"]["name"], {}
        for replicated in () if job["spec"].get("suspend") else job["spec"]["replicatedJobs"]:
            spec = replicated["template"]["spec"]
            for index in range(replicated.get("replicas", 1)):
                key = f"{name}-{replicated['name']}-{index}"
                # The real one makes a Job for each replica, whose pods have its name too.
                of_job = {"batch.kubernetes.io/job-name": key}
                labels = of_job | {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/job-key": key}
                most = spec.get("parallelism", 1)
                wanted[key] = [(spec["template"], labels)] * min(most, spec.get("completions", most))
        pods = await _keep(self._controller, job, wanted, by="jobset.sigs.k8s.io/job-key")
        status: Manifest = {"active": sum(not is_over(pod) for pod in pods)}
        if pods and not status["active"] and "conditions" not in job.get("status", {}):
            complete = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "all is done"}
            status["conditions"] = [complete | {"lastTransitionTime": now_text()}]
        await self._controller.set_status(job, status)


class GroupController:
    """Keeps the pods of each group of a LeaderWorkerSet, the leader first."""

    def __init__(self, client: KubeClient) -> None:
        self._controller = Controller(client, GROUPS, PODS)

    async def run(self) -> None:
        await self._controller.run(self._reconcile)

    async def _reconcile(self, job: Manifest) -> None:
        if "deletionTimestamp" in job["metadata"]:
            return
        name, groups = job["metadata"]["name"], job["spec"]["leaderWorkerTemplate"]
        worker, wanted = groups["workerTemplate"], {}
        for index in range(job["spec"].get("replicas", 1)):
            key = f"{name}-{index}"
            labels = {"leaderworkerset.sigs.k8s.io/name": name, "leaderworkerset.sigs.k8s.io/group-key": key}
            templates = [groups.get("leaderTemplate", worker), *[worker] * (groups.get("size", 1) - 1)]
            wanted[key] = [(template, labels) for template in templates]
        await _keep(self._controller, job, wanted, by="leaderworkerset.sigs.k8s.io/group-key")


async def _keep(
    controller: Controller, job: Manifest, wanted: dict[str, list[tuple[Manifest, dict[str, str]]]], *, by: str
) -> list[Manifest]:
    """Make and delete pods until there are those of every wanted group and template, and no others; the pods."""
    left: defaultdict[tuple[str, str | None], list[Manifest]] = defaultdict(list)
    for pod in sorted(controller.children(PODS, job), key=surplus_order, reverse=True):
        if not is_going(pod):
            left[pod["metadata"]["labels"][by], _pod_set_of(pod)].append(pod)
    kept = []
    for key, members in wanted.items():
        for template, labels in members:
            if present := left[key, _pod_set_of(template)]:
                kept.append(present.pop(0))
            else:
                pod = pod_of(template, name=f"{key}-{random_hex(3)[:5]}", owner=job, labels=labels)
                kept.append(await controller.create(PODS, pod))
    for pod in (pod for pods in left.values() for pod in pods):
        await controller.delete(PODS, pod)
    return kept


def _pod_set_of(manifest: Manifest) -> str | None:
    found: str | None = ((manifest.get("metadata") or {}).get("labels") or {}).get(kueue.POD_SET_LABEL)
    return found
