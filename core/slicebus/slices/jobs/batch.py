"""Describes the kind batch/v1 Job."""

import itertools
from typing import Any

import msgspec

from slicebus.proto.messages import Counts, JobPhase
from slicebus.slices.api import kueue
from slicebus.slices.api.annotation_values import read_number
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs.base import SUSPEND_PATH, Outcome, Placement, Problem, lacks_managed_by
from slicebus.slices.jobs.batch_status import (
    complete_indexes,
    failed_indexes,
    fitted,
    last_index,
    succeeded_indexes,
)
from slicebus.slices.jobs.copies import MOST_PODS, common_problems, copy_of, gated_template, without
from slicebus.slices.jobs.paths import Path
from slicebus.slices.jobs.plain import PlainKind
from slicebus.slices.jobs.shapes import JobSpec, JobStatus

Manifest = dict[str, Any]

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
"""The Job controller sets it on the pods of a Job."""
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
"""The Job controller sets it on the pods of an Indexed Job."""
_POD_SET = "main"
_SUSPENDED = "Suspended"
_INDEXED, _COMPLETIONS, _MAX_FAILED = "Indexed", "completions", "maxFailedIndexes"
_SERVER_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", JOB_NAME_LABEL)
"""The API server writes these into the template, together with a selector; the worker's has to make its own. With
`manualSelector` their user may have written those of another Job."""


class BatchJob(PlainKind):
    """A Job has one pod set, `main`, whose count is the parallelism, or the completions where these are fewer.

    The completions of an Indexed Job may change, but only to the number that its parallelism then has (KEP-3715).
    """

    resource = Resource("batch", "v1", "jobs", "Job")
    owner_labels: tuple[str, ...] = (JOB_NAME_LABEL,)
    pod_owners: frozenset[str] | None = frozenset()
    suspend_path: Path | None = SUSPEND_PATH
    # Since Kubernetes 1.31. An API server refuses an ended Job with pods.
    ends_with_pods = True
    spec_shape: type[msgspec.Struct] = JobSpec
    status_shape: type[msgspec.Struct] = JobStatus

    def lacks_dispatch(self, job: Manifest) -> str:
        """It needs a `managedBy` for slicebus."""
        return lacks_managed_by(job)

    def pod_sets(self, job: Manifest) -> list[Manifest]:
        """The one pod set, `main`."""
        return [{"name": _POD_SET, "count": _most_pods(job), "template": _own_template(job)}]

    def counts(self, job: Manifest, scale_target: Manifest) -> Counts:
        """The parallelism, or the completions where these are fewer, as Kueue counts. It may exceed what is left to
        complete: KEP-77 counts the desired size."""
        return {_POD_SET: _most_pods(scale_target)}

    def finished(self, job: Manifest) -> Counts:
        """The count minus the completions that are left: the Job controller makes no more pods than those, and none
        again for an index that has failed (KEP-3850).
        Without completions a Job starts no pod after the first success: Kueue then counts as many completions as its
        parallelism."""
        most, succeeded, indexes = _most_pods(job), _succeeded(job), _completions(job)
        failed = len(failed_indexes(job.get("status", {}), below=indexes)) if indexes is not None else 0
        left = max(0, job["spec"].get("completions", most) - succeeded - failed)
        return {_POD_SET: most - left} if left < most else {}

    def succeeded(self, status: Manifest) -> Counts:
        """All that have succeeded so far: a Job whose pods end soon never has all of them ready at once."""
        count = status.get("succeeded", 0)
        return {_POD_SET: count} if count else {}

    def ready(self, status: Manifest) -> int | None:
        """Those that are ready now."""
        return status.get("ready")

    def problems(self, job: Manifest) -> list[Problem]:
        """Only what no kind can do with: the API server has validated the rest."""
        return common_problems(job, self.pod_sets(job))

    def worker_copy(self, job: Manifest, placements: dict[str, Placement]) -> Manifest:
        """The job with a gated template and no selector, also none of its user's: the worker's API server makes one
        with the labels by which the pods are found."""
        template = gated_template(_own_template(job), _POD_SET, placements.get(_POD_SET, Placement()))
        spec = without(job["spec"], ("selector", "manualSelector")) | {"template": template, "suspend": False}
        copy, said = copy_of(job, spec), self.said_of_end(job)
        if said is not None:
            copy["metadata"].setdefault("annotations", {})[kueue.SYNC_COMPLETIONS_ANNOTATION] = said
        return copy

    def resize(self, scale_target: Manifest, counts: Counts) -> list[Manifest]:
        """Patch the parallelism."""
        if counts.get(_POD_SET, _most_pods(scale_target)) == _most_pods(scale_target):
            return []
        return _patch_parallelism(counts[_POD_SET])

    def follow(self, scale_target: Manifest, job: Manifest) -> list[list[Manifest]]:
        """Patch the parallelism, and the completions of an Indexed Job, with what may fail of them. Where these are not
        to be as many, both get their number first."""
        wanted, present = _completions(job), _completions(scale_target)
        if wanted is None or present is None or wanted == present:
            return super().follow(scale_target, job)
        patches = [_in_tandem(scale_target, wanted, most_failed=job["spec"].get(_MAX_FAILED))]
        return patches if _most_pods(job) == wanted else [*patches, _patch_parallelism(_most_pods(job))]

    def as_ended(self, job: Manifest, reported: Manifest) -> Manifest:
        """An Indexed Job that is complete has succeeded with each index, where it has no other rule for its success."""
        number = complete_indexes(reported)
        if "successPolicy" in job["spec"] or _completions(job) in (None, number) or number is None:
            return job
        return _with_failures(job | {"spec": job["spec"] | {"parallelism": number, "completions": number}})

    def least(self, job: Manifest) -> Counts:
        """Kueue's annotation for that, and no fewer than its success needs where its completions follow."""
        least = read_number(job["metadata"].get("annotations", {}).get(kueue.MIN_PARALLELISM_ANNOTATION))
        return {_POD_SET: max(least, _fewest(job) if self.end_follows(job) else 0)} if least > 0 else {}

    def bounds(self, job: Manifest) -> Manifest:
        """The completions of an Indexed Job."""
        completions = _completions(job)
        return {} if completions is None else {_COMPLETIONS: completions}

    def ends_by_size(self, job: Manifest) -> bool:
        """An Indexed Job with as many completions as pods."""
        return _completions(job) == _parallelism(job)

    def end_follows(self, job: Manifest) -> bool:
        """Such a Job, unless Kueue's annotation for that says that its indexes are shares of the work."""
        return self.ends_by_size(job) and super().said_of_end(job) != "false"

    def said_of_end(self, job: Manifest) -> str | None:
        """That they do not follow, also of a Job that has more completions than pods: somebody may make them equal
        where it runs."""
        said = super().said_of_end(job)
        return said if _completions(job) is None or self.end_follows(job) else "false"

    def with_pods(self, job: Manifest, counts: Counts, *, present: Manifest) -> Manifest:
        """The completions of an Indexed Job stay, unless they follow, and are as many as its pods where it runs too.
        They are never fewer than the pods, as these may have been added there."""
        completions, follow = _completions(present), self.end_follows(job) and self.ends_by_size(present)
        if follow or _POD_SET not in counts or _completions(job) is None or completions is None:
            return _with_failures(self.with_counts(job, counts))
        size = counts[_POD_SET]
        return _with_failures(
            job | {"spec": job["spec"] | {"parallelism": size, "completions": max(size, completions)}}
        )

    def left_at(self, job: Manifest, size: Counts) -> Counts:
        """Without the indexes below the completions that have ended: the completions are the size, or stay. So does the
        manager count where the completions follow by its job, and stay in this one, which has more of them."""
        follow = _completions(job) is not None and super().said_of_end(job) != "false"
        if not (follow or self.ends_by_size(job)):
            return size
        if follow:
            return {name: count - len(_ended(job, below=count)) for name, count in size.items()}
        most = _parallelism(job)
        return {name: min(count, most - len(_ended(job, below=most))) for name, count in size.items()}

    def size_for(self, job: Manifest, left: Counts, finished: Counts) -> Counts:
        """The indexes below the first one that is too many. Without a status that names all that have ended, these
        count as the lowest ones."""
        if not self.ends_by_size(job):
            return left
        done = _ended(job, below=MOST_PODS)
        if len(done) < finished.get(_POD_SET, 0):
            return {_POD_SET: left[_POD_SET] + finished[_POD_SET]}
        unfinished = (index for index in itertools.count() if index not in done)
        return {_POD_SET: next(itertools.islice(unfinished, left[_POD_SET], None))}

    def set_bounds(self, target: Manifest, bounds: Manifest) -> list[Manifest]:
        """Patch the completions, and with them the parallelism: they change together only."""
        wanted = bounds.get(_COMPLETIONS)
        if wanted is None or _completions(target) in (None, wanted):
            return []
        return _in_tandem(target, wanted, most_failed=None)

    def with_counts(self, job: Manifest, counts: Counts) -> Manifest:
        """Set the parallelism, unless the Job has these counts. An Indexed Job with as many completions changes them
        too, and keeps those that its success needs."""
        if counts.get(_POD_SET, _most_pods(job)) == _most_pods(job):
            return job
        size = max(counts[_POD_SET], _fewest(job)) if self.end_follows(job) else counts[_POD_SET]
        changed = {"parallelism": size}
        if self.ends_by_size(job):
            changed["completions"] = size
        return job | {"spec": job["spec"] | changed}

    def mirrored_status(self, job: Manifest, reported: Manifest) -> Manifest:
        """The worker's status, as far as the API server takes it for the manager's Job (`batch_status`)."""
        return fitted(job, reported)

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

    def index_label(self, job: Manifest, pod_set: str) -> str:
        """Of an Indexed Job whose completions go down too."""
        return INDEX_LABEL if self.end_follows(job) else ""

    def scaler(self, scale_target: Manifest) -> str:
        """Its user changes the parallelism."""
        return "parallelism changed"


def _completions(job: Manifest) -> int | None:
    """The completions of an Indexed Job; None for other Jobs, which cannot change theirs."""
    completions: int | None = job["spec"].get("completions")
    return completions if job["spec"].get("completionMode") == _INDEXED else None


def _succeeded(job: Manifest) -> int:
    """How many have succeeded. The status of a Job that has just lost its highest indexes still names them."""
    status, completions = job.get("status", {}), _completions(job)
    count: int = status.get("succeeded", 0)
    if completions is None or "completedIndexes" not in status:
        return count
    return min(count, len(succeeded_indexes(status, below=completions)))


def _ended(job: Manifest, *, below: int) -> frozenset[int]:
    """The indexes below a number that no pod comes for any more."""
    status = job.get("status", {})
    return succeeded_indexes(status, below=below) | failed_indexes(status, below=below)


def _fewest(job: Manifest) -> int:
    """The fewest completions with which an API server takes the Job: its success policy names indexes below them, or a
    number of them."""
    rules: list[Manifest] = (job["spec"].get("successPolicy") or {}).get("rules") or []
    needed = ((rule.get("succeededCount") or 0, last_index(rule.get("succeededIndexes")) + 1) for rule in rules)
    return max(itertools.chain.from_iterable(needed), default=0)


def _with_failures(job: Manifest) -> Manifest:
    """The Job with no more indexes that may fail than completions: an API server takes no more."""
    most, completions = job["spec"].get(_MAX_FAILED), _completions(job)
    if most is None or completions is None or most <= completions:
        return job
    return job | {"spec": job["spec"] | {_MAX_FAILED: completions}}


def _in_tandem(target: Manifest, number: int, *, most_failed: int | None) -> list[Manifest]:
    """Patch both numbers, and how many indexes may fail: as many as the manager's job says, if it does."""
    present = target["spec"].get(_MAX_FAILED)
    wanted = most_failed if most_failed is not None else present
    patch = [*_patch_parallelism(number), {"op": "add", "path": "/spec/completions", "value": number}]
    if wanted is None or min(wanted, number) == present:
        return patch
    return [*patch, {"op": "add", "path": f"/spec/{_MAX_FAILED}", "value": min(wanted, number)}]


def _patch_parallelism(number: int) -> list[Manifest]:
    return [{"op": "add", "path": "/spec/parallelism", "value": number}]


def _parallelism(job: Manifest) -> int:
    value: int = job["spec"].get("parallelism", 1)
    return value


def _most_pods(job: Manifest) -> int:
    """The most pods that run at a time: the Job controller makes no more than are left to complete."""
    parallelism = _parallelism(job)
    completions: int = job["spec"].get("completions", parallelism)
    return min(parallelism, completions)


def _own_template(job: Manifest) -> Manifest:
    template: Manifest = job["spec"]["template"]
    metadata = template.get("metadata") or {}
    return template | {"metadata": metadata | {"labels": without(metadata.get("labels") or {}, _SERVER_LABELS)}}
