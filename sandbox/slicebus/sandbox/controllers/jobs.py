"""The Job controller's stand-in: keeps `parallelism` pods until enough have succeeded.

An Indexed Job has a pod for each index, the lowest first, and ends when every index below its completions has
succeeded. Indexes that its completions leave out are forgotten, with their pods.
"""

import itertools
from typing import Any

from slicebus.ambient.clock import random_hex
from slicebus.kube.client import KubeClient
from slicebus.kube.events import EventRecorder
from slicebus.kube.resources import JOBS, PODS
from slicebus.kube.times import now_text
from slicebus.proto.errors import ForbiddenError, UnavailableError
from slicebus.sandbox.controllers.controller import Controller, is_going, is_over, is_ready, pod_of, surplus_order
from slicebus.sandbox.controllers.job_indexes import INDEX, done_indexes, free_indexes, misplaced, text_of

Manifest = dict[str, Any]

_OWN_CONTROLLER = (None, "kubernetes.io/job-controller")


class JobController:
    """Runs Jobs without a `managedBy` of another controller."""

    def __init__(self, client: KubeClient) -> None:
        self._controller = Controller(client, JOBS, PODS)
        self._events = EventRecorder(client, component="job-controller")
        self._succeeded: dict[str, set[str]] = {}
        """The pods of each Job that have succeeded, by UIDs: they still count when somebody has deleted them."""

    async def run(self) -> None:
        """Run Jobs until cancelled."""
        await self._controller.run(self._reconcile, events=self._events)

    async def _reconcile(self, job: Manifest) -> None:
        if job["spec"].get("managedBy") not in _OWN_CONTROLLER or "deletionTimestamp" in job["metadata"]:
            return
        if _ended(job):
            return
        pods = self._controller.children(PODS, job)
        done = done_indexes(job, pods)
        succeeded = self._count_succeeded(job, pods) if done is None else len(done)
        failed = sum(pod.get("status", {}).get("phase") == "Failed" for pod in pods)
        active = [pod for pod in pods if not is_over(pod) and not is_going(pod)]
        wanted = _wanted(job["spec"], active=len(active), succeeded=succeeded, failed=failed)
        surplus = misplaced(active, done, job["spec"]["completions"]) if done is not None else []
        active = [pod for pod in active if pod not in surplus]
        surplus += sorted(active, key=surplus_order)[: max(0, len(active) - wanted)]
        for pod in surplus:
            await self._controller.delete(PODS, pod)
        indexes = free_indexes(active, done) if done is not None else itertools.repeat(None)
        for index in itertools.islice(indexes, max(0, wanted - len(active))):
            await self._make_pod(job, index)
        active = [pod for pod in self._controller.children(PODS, job) if not is_over(pod)]
        status = _status(job, active, succeeded=succeeded, failed=failed)
        if done is not None and (done or "completedIndexes" in job.get("status", {})):
            status["completedIndexes"] = text_of(done)
        await self._controller.set_status(job, status)

    def _count_succeeded(self, job: Manifest, pods: list[Manifest]) -> int:
        seen = self._succeeded.setdefault(job["metadata"]["uid"], set())
        seen.update(pod["metadata"]["uid"] for pod in pods if pod.get("status", {}).get("phase") == "Succeeded")
        known: int = job.get("status", {}).get("succeeded", 0)
        return max(len(seen), known)

    async def _make_pod(self, job: Manifest, index: int | None) -> None:
        suffix, labels = (f"{index}-", {INDEX: str(index)}) if index is not None else ("", {})
        name = f"{job['metadata']['name']}-{suffix}{random_hex(3)[:5]}"
        try:
            await self._controller.create(PODS, pod_of(job["spec"]["template"], name=name, owner=job, labels=labels))
        except ForbiddenError as error:
            self._events.record(job, reason="FailedCreate", note=f"Error creating: {error}", warning=True)
            # The Job controller tries again: a quota may be raised.
            raise UnavailableError(str(error)) from error


def _wanted(spec: Manifest, *, active: int, succeeded: int, failed: int) -> int:
    """The number of pods that should be active now. Without completions no pod is made or deleted after the first
    success: whatever runs ends by itself."""
    if spec.get("suspend") or failed > spec["backoffLimit"]:
        return 0
    completions = spec.get("completions")
    if completions is None:
        return active if succeeded else int(spec["parallelism"])
    return int(min(spec["parallelism"], completions - succeeded))


def _ended(job: Manifest) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(entry["type"] in ("Complete", "Failed") and entry["status"] == "True" for entry in conditions)


def _status(job: Manifest, active: list[Manifest], *, succeeded: int, failed: int) -> Manifest:
    spec, now = job["spec"], now_text()
    status: Manifest = {
        "active": len(active),
        "ready": sum(map(is_ready, active)),
        "succeeded": succeeded,
        "failed": failed,
        "startTime": job.get("status", {}).get("startTime") or now,
    }
    if active:
        # Since Kubernetes 1.31 a Job ends when all of its pods have.
        return status
    completions = spec.get("completions")
    if succeeded >= completions if completions is not None else succeeded:
        reason = "CompletionsReached"
        status["conditions"] = [
            _condition(type, reason, "Reached expected number of succeeded pods", now)
            for type in ("SuccessCriteriaMet", "Complete")
        ]
        status["completionTime"] = now
    elif failed > spec["backoffLimit"]:
        text = "Job has reached the specified backoff limit"
        status["conditions"] = [
            _condition(type, "BackoffLimitExceeded", text, now) for type in ("FailureTarget", "Failed")
        ]
    return status


def _condition(type: str, reason: str, message: str, now: str) -> Manifest:
    return {
        "type": type,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": now,
        "lastTransitionTime": now,
    }
