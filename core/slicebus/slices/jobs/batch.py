"""Describes the kind batch/v1 Job."""

from typing import Any

from slicebus.proto.messages import Counts, JobPhase
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs.base import SUSPEND_PATH, Outcome, Placement, Problem, lacks_managed_by
from slicebus.slices.jobs.copies import common_problems, copy_of, gated_template, without
from slicebus.slices.jobs.paths import Path
from slicebus.slices.jobs.plain import PlainKind

Manifest = dict[str, Any]

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
"""The Job controller sets it on the pods of a Job."""
_POD_SET = "main"
_SUSPENDED = "Suspended"
_COUNTERS = ("succeeded", "failed")
_SERVER_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", JOB_NAME_LABEL)
"""The API server writes these into the template, together with a selector; the worker's has to make its own."""


class BatchJob(PlainKind):
    """A Job has one pod set, `main`, whose count is the parallelism."""

    resource = Resource("batch", "v1", "jobs", "Job")
    owner_labels: tuple[str, ...] = (JOB_NAME_LABEL,)
    suspend_path: Path | None = SUSPEND_PATH

    def lacks_dispatch(self, job: Manifest) -> str:
        """It needs a `managedBy` for slicebus."""
        return lacks_managed_by(job)

    def pod_sets(self, job: Manifest) -> list[Manifest]:
        """The one pod set, `main`."""
        return [{"name": _POD_SET, "count": _parallelism(job), "template": _own_template(job)}]

    def counts(self, job: Manifest, scale_target: Manifest) -> Counts:
        """The parallelism, which may exceed what is left to complete: KEP-77 counts the desired size."""
        return {_POD_SET: _parallelism(scale_target)}

    def finished(self, job: Manifest) -> Counts:
        """The parallelism minus the completions that are left: the Job controller makes no more pods than those.
        Without completions a Job starts no pod after the first success: Kueue then counts as many completions as its
        parallelism."""
        parallelism, succeeded = _parallelism(job), job.get("status", {}).get("succeeded", 0)
        left = max(0, job["spec"].get("completions", parallelism) - succeeded)
        return {_POD_SET: parallelism - left} if left < parallelism else {}

    def succeeded(self, status: Manifest) -> Counts:
        """All that have succeeded so far: a Job whose pods end soon never has all of them ready at once."""
        count = status.get("succeeded", 0)
        return {_POD_SET: count} if count else {}

    def problems(self, job: Manifest) -> list[Problem]:
        """Only what no kind can do with: the API server has validated the rest."""
        return common_problems(job, self.pod_sets(job))

    def worker_copy(self, job: Manifest, placements: dict[str, Placement]) -> Manifest:
        """The job with a gated template and without the selector of the manager's API server."""
        template = gated_template(_own_template(job), _POD_SET, placements.get(_POD_SET, Placement()))
        dropped = () if job["spec"].get("manualSelector") else ("selector", "manualSelector")
        spec = without(job["spec"], dropped) | {"template": template, "suspend": False}
        return copy_of(job, spec)

    def resize(self, scale_target: Manifest, counts: Counts) -> list[Manifest]:
        """Patch the parallelism."""
        if counts.get(_POD_SET, _parallelism(scale_target)) == _parallelism(scale_target):
            return []
        return [{"op": "add", "path": "/spec/parallelism", "value": counts[_POD_SET]}]

    def with_counts(self, job: Manifest, counts: Counts) -> Manifest:
        """Set the parallelism. An indexed Job with as many completions must change them too."""
        changed = {"parallelism": counts.get(_POD_SET, _parallelism(job))}
        if job["spec"].get("completionMode") == "Indexed" and job["spec"].get("completions") == _parallelism(job):
            changed["completions"] = changed["parallelism"]
        return job | {"spec": job["spec"] | changed}

    def mirrored_status(self, job: Manifest, reported: Manifest) -> Manifest:
        """The worker's status, but no counter falls, and the start of a Job that is not suspended stays (KEP-4368).

        A Job that is made anew, on another cluster or where it was lost, begins both again.
        """
        shown = job.get("status", {})
        kept = {name: shown[name] for name in _COUNTERS if shown.get(name, 0) > reported.get(name, 0)}
        if "startTime" in shown and not job["spec"].get("suspend"):
            kept["startTime"] = shown["startTime"]
        return reported | kept

    def running_status(self, reported: Manifest) -> Manifest:
        """A Job is active while it has an active pod."""
        return reported | {"active": max(1, reported.get("active", 0))}

    def suspended_status(self, status: Manifest, *, active: bool, now: str) -> Manifest:
        """Set the condition Suspended: since Kubernetes 1.36 a template changes only with it, and without pods."""
        conditions = [entry for entry in status.get("conditions") or () if entry["type"] != _SUSPENDED]
        present: Manifest = next((entry for entry in status.get("conditions") or () if entry["type"] == _SUSPENDED), {})
        if present.get("status") != "True":
            present = {"lastProbeTime": now, "lastTransitionTime": now}
        wanted = {"type": _SUSPENDED, "status": "True", "reason": "JobSuspended", "message": "Waits for admission"}
        kept = status if active else without(status, ("active", "ready", "terminating"))
        return without(kept, ("startTime",)) | {"conditions": [*conditions, present | wanted]}

    def outcome(self, job: Manifest) -> Outcome:
        """Read the conditions Complete and Failed."""
        phases = {"Complete": JobPhase.SUCCEEDED, "Failed": JobPhase.FAILED}
        for condition in job.get("status", {}).get("conditions") or ():
            if condition["type"] in phases and condition["status"] == "True":
                return Outcome(phases[condition["type"]], condition.get("message", ""))
        return Outcome(JobPhase.RUNNING)

    def pod_selectors(self, job: Manifest) -> list[dict[str, str]]:
        """The label that the Job controller sets."""
        return [{JOB_NAME_LABEL: job["metadata"]["name"]}]

    def replica_size(self, scale_target: Manifest, pod_set: str) -> int:
        """One pod: a Job has no replicas of several."""
        return 1

    def replica(self, labels: dict[str, str], owner_uid: str) -> tuple[str, str]:
        """Any pod of the Job: none has a replica's name."""
        return owner_uid, ""

    def scaler(self, scale_target: Manifest) -> str:
        """Its user changes the parallelism."""
        return "parallelism changed"


def _parallelism(job: Manifest) -> int:
    value: int = job["spec"].get("parallelism", 1)
    return value


def _own_template(job: Manifest) -> Manifest:
    template: Manifest = job["spec"]["template"]
    metadata = template.get("metadata") or {}
    return template | {"metadata": metadata | {"labels": without(metadata.get("labels") or {}, _SERVER_LABELS)}}
