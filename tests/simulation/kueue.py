"""A Kueue's stand-in for Jobs, so that a run beside one can be recorded without its binary.

It makes, admits, replaces, evicts and finishes slices as facts that slicebus goes by (docs/kueue-mode.md): quota first,
then the check, then the admission, and quota back when the job is no longer active. One ClusterQueue, one flavor, first
come first served. What a real Kueue does is tested with a real one (tests/e2e/test_kueue_mode.py).
"""

import asyncio
from typing import Any

from slicebus.ambient.clock import now
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import ADMISSIONCHECKS, CRDS, JOBS, WORKLOADS
from slicebus.kube.times import time_text
from slicebus.manager.decide.manifests import workload_manifest
from slicebus.manager.state.requirements import queue_of
from slicebus.manager.state.store import owner_ref
from slicebus.proto.errors import ConflictError, NotFoundError
from slicebus.proto.messages import JobRef
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.kueue import CheckState, Condition
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.chain import CreateSlice, FinishSlice, SetCounts, plan
from slicebus.slices.workload.workload import FlavorName, Slice

Manifest = dict[str, Any]
QUEUE, FLAVOR, CPU = "batch", "reserved", 6
CHECK = "slicebus"
_LOOK_S = 0.5


def definition() -> Manifest:
    """Of AdmissionChecks, which only a Kueue brings."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": ADMISSIONCHECKS.plural, "singular": "admissioncheck", "kind": ADMISSIONCHECKS.kind}
    version = {"name": ADMISSIONCHECKS.version, "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": f"{ADMISSIONCHECKS.plural}.{ADMISSIONCHECKS.group}"},
        "spec": {
            "group": ADMISSIONCHECKS.group,
            "scope": "Cluster",
            "names": names,
            "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
        },
    }


class Kueue:
    """On the manager's cluster."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._made = 0

    async def install(self) -> None:
        """Its definition, and the check that slicebus answers."""
        await self._client.create(CRDS, definition())
        spec = {"controllerName": api_names.CHECK_CONTROLLER}
        named = {"apiVersion": ADMISSIONCHECKS.api_version, "kind": ADMISSIONCHECKS.kind, "metadata": {"name": CHECK}}
        await self._client.create(ADMISSIONCHECKS, named | {"spec": spec})

    async def run(self) -> None:
        """Look at every job again and again, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            workloads = (await self._client.list(WORKLOADS)).items
            jobs = {job["metadata"]["uid"]: job for job in (await self._client.list(JOBS)).items}
            for workload in workloads:
                if "deletionTimestamp" in workload["metadata"]:
                    await self._let_go(workload)
            for job in jobs.values():
                try:
                    await self._look(job, workloads)
                except (ConflictError, NotFoundError):
                    continue  # It is reconciled again.

    async def _look(self, job: Manifest, workloads: list[Manifest]) -> None:
        metadata = job["metadata"]
        if "deletionTimestamp" in metadata:
            return
        of_job = {w["metadata"]["name"]: w for w in workloads if (ref := owner_ref(w)) and ref.uid == metadata["uid"]}
        slices = [Slice.from_manifest(workload) for workload in of_job.values()]
        for command in plan(slices, KINDS["Job"].counts(job, job)):
            match command:
                case CreateSlice():
                    await self._make(job, command)
                case SetCounts():
                    await self._set_counts(of_job[command.slice.name], command.counts["main"])
                case FinishSlice():
                    finished = _condition(Condition.FINISHED, True, command.reason, command.message)
                    await self._write(of_job[command.slice.name], finished)
                    await self._let_go(of_job[command.slice.name])
            return
        for slice in slices:
            if not slice.finished and not slice.deleting:
                await self._advance(job, slice, of_job[slice.name], [Slice.from_manifest(w) for w in workloads])

    async def _advance(self, job: Manifest, slice: Slice, workload: Manifest, all_slices: list[Slice]) -> None:
        states = {check["state"] for check in workload.get("status", {}).get("admissionChecks", ())}
        if slice.evicting:
            if not job["spec"].get("suspend"):
                await self._suspend(job, suspended=True)
            elif not job.get("status", {}).get("active"):
                waits = _condition(Condition.QUOTA_RESERVED, False, "Pending", "The workload was evicted")
                lost = _condition(Condition.ADMITTED, False, "NoReservation", "The workload has no reservation")
                await self._write(workload, waits, lost, admission=None, admissionChecks=None)
        elif slice.admission is None:
            await self._reserve(slice, workload, all_slices)
        elif CheckState.RETRY in states:
            text = "At least one admission check is false"
            await self._write(workload, _condition(Condition.EVICTED, True, "AdmissionCheck", text))
        elif states == {CheckState.READY} and not slice.condition(Condition.ADMITTED):
            await self._write(workload, _condition(Condition.ADMITTED, True, "Admitted", "The workload is admitted"))
        elif slice.condition(Condition.ADMITTED) and job["spec"].get("suspend"):
            await self._suspend(job, suspended=False)

    async def _reserve(self, slice: Slice, workload: Manifest, all_slices: list[Slice]) -> None:
        others = [other for other in all_slices if other.key not in (slice.key, slice.replaces)]
        used = sum(other.usage.get((FlavorName(FLAVOR), "cpu"), 0) for other in others) // 1000
        count = slice.counts["main"]
        if used + count > CPU:
            text = f"couldn't assign flavors to pod set main: insufficient quota for cpu in flavor {FLAVOR}"
            if slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("message") != text:
                await self._write(workload, _condition(Condition.QUOTA_RESERVED, False, "Pending", text))
            return
        assignment = {"name": "main", "count": count, "flavors": {"cpu": FLAVOR}, "resourceUsage": {"cpu": str(count)}}
        check = {"name": CHECK, "state": CheckState.PENDING, "message": "", "lastTransitionTime": time_text(now())}
        conditions = [_condition(Condition.QUOTA_RESERVED, True, "QuotaReserved", f"Quota reserved in {QUEUE}")]
        if slice.evicted:
            conditions.append(_condition(Condition.EVICTED, False, "QuotaReserved", "Previously: evicted"))
        admission = {"clusterQueue": QUEUE, "podSetAssignments": [assignment]}
        await self._write(workload, *conditions, admission=admission, admissionChecks=[check])

    async def _make(self, job: Manifest, command: CreateSlice) -> None:
        """Its webhook suspends a job before anybody sees it; here that is when it is first reconciled."""
        if command.replaces is None and not job["spec"].get("suspend"):
            await self._suspend(job, suspended=True)
        self._made += 1
        metadata = job["metadata"]
        name = f"job-{metadata['name']}-{self._made}"
        ref = JobRef(JOBS.api_version, JOBS.kind, metadata["namespace"], metadata["name"], metadata["uid"])
        annotations = {kueue.ELASTIC_ANNOTATION: "true", kueue.SLICE_NAME_ANNOTATION: command.chain or name}
        if command.replaces:
            annotations[kueue.REPLACEMENT_FOR_ANNOTATION] = command.replaces
        pod_sets = [{"name": "main", "count": command.counts["main"], "template": job["spec"]["template"]}]
        priority = {"priority": 0}
        queue = queue_of(job)
        made = workload_manifest(job, pod_sets, ref=ref, name=name, queue=queue, annotations=annotations, spec=priority)
        await self._client.create(WORKLOADS, made, field_manager="kueue")

    async def _set_counts(self, workload: Manifest, count: int) -> None:
        pod_sets = [pod_set | {"count": count} for pod_set in workload["spec"]["podSets"]]
        await self._patch(workload, {"spec": {"podSets": pod_sets}})

    async def _let_go(self, workload: Manifest) -> None:
        finalizers = workload["metadata"].get("finalizers") or []
        if kueue.RESOURCE_IN_USE_FINALIZER in finalizers:
            present = await self._client.get(WORKLOADS, workload["metadata"]["name"], objects.NAMESPACE)
            left = [each for each in present["metadata"]["finalizers"] if each != kueue.RESOURCE_IN_USE_FINALIZER]
            await self._patch(present, {"metadata": {"finalizers": left}})

    async def _suspend(self, job: Manifest, *, suspended: bool) -> None:
        body = MergePatch({"spec": {"suspend": suspended}})
        await self._client.patch(JOBS, job["metadata"]["name"], job["metadata"]["namespace"], body)

    async def _write(self, workload: Manifest, *conditions: Manifest, **status: Any) -> None:
        changed = {condition["type"] for condition in conditions}
        kept = [each for each in workload.get("status", {}).get("conditions", ()) if each["type"] not in changed]
        await self._patch(workload, {"status": {"conditions": [*kept, *conditions], **status}}, subresource="status")

    async def _patch(self, workload: Manifest, body: Manifest, *, subresource: str = "") -> None:
        metadata = workload["metadata"]
        fenced = {"metadata": {"resourceVersion": metadata["resourceVersion"]} | body.get("metadata", {})}
        await self._client.patch(
            WORKLOADS, metadata["name"], metadata["namespace"], MergePatch(body | fenced), subresource=subresource
        )


def _condition(type: Condition, is_true: bool, reason: str, message: str) -> Manifest:
    since = time_text(now())
    status = {"status": "True" if is_true else "False", "reason": str(reason), "message": message}
    return {"type": type.value, **status, "lastTransitionTime": since}
