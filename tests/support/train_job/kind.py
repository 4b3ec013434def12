"""A job kind of another package: example.dev/v1 TrainJob, with one pod set whose size is `spec.replicas`."""

from typing import Any

from slicebus.proto.messages import Counts, JobPhase
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs import Outcome, Placement, PlainKind, Problem
from slicebus.slices.jobs.base import SUSPEND_PATH, lacks_managed_by
from slicebus.slices.jobs.copies import common_problems, copy_of, gated_template
from slicebus.slices.jobs.paths import Path

Manifest = dict[str, Any]

NAME_LABEL = "example.dev/train-job"
"""The controller sets it on the pods."""
POD_SET = "trainers"


class TrainJob(PlainKind):
    resource = Resource("example.dev", "v1", "trainjobs", "TrainJob")
    owner_labels: tuple[str, ...] = (NAME_LABEL,)
    suspend_path: Path | None = SUSPEND_PATH

    def lacks_dispatch(self, job: Manifest) -> str:
        return lacks_managed_by(job)

    def pod_sets(self, job: Manifest) -> list[Manifest]:
        return [{"name": POD_SET, "count": job["spec"]["replicas"], "template": job["spec"]["template"]}]

    def counts(self, job: Manifest, scale_target: Manifest) -> Counts:
        return {POD_SET: scale_target["spec"]["replicas"]}

    def problems(self, job: Manifest) -> list[Problem]:
        return common_problems(job, self.pod_sets(job))

    def worker_copy(self, job: Manifest, placements: dict[str, Placement]) -> Manifest:
        template = gated_template(job["spec"]["template"], POD_SET, placements.get(POD_SET, Placement()))
        return copy_of(job, job["spec"] | {"template": template, "suspend": False})

    def resize(self, scale_target: Manifest, counts: Counts) -> list[Manifest]:
        wanted = counts.get(POD_SET, scale_target["spec"]["replicas"])
        if wanted == scale_target["spec"]["replicas"]:
            return []
        return [{"op": "replace", "path": "/spec/replicas", "value": wanted}]

    def with_counts(self, job: Manifest, counts: Counts) -> Manifest:
        return job | {"spec": job["spec"] | {"replicas": counts.get(POD_SET, job["spec"]["replicas"])}}

    def mirrored_status(self, job: Manifest, reported: Manifest) -> Manifest:
        return reported

    def running_status(self, reported: Manifest) -> Manifest:
        return reported | {"active": max(1, reported.get("active", 0))}

    def suspended_status(self, status: Manifest, *, active: bool, now: str) -> Manifest:
        return status if active else {"active": 0}

    def outcome(self, job: Manifest) -> Outcome:
        done = any(entry["type"] == "Complete" for entry in job.get("status", {}).get("conditions", ()))
        return Outcome(JobPhase.SUCCEEDED if done else JobPhase.RUNNING)

    def pod_selectors(self, job: Manifest) -> list[dict[str, str]]:
        return [{NAME_LABEL: job["metadata"]["name"]}]

    def replica_size(self, scale_target: Manifest, pod_set: str) -> int:
        return 1

    def replica(self, labels: dict[str, str], owner_uid: str) -> tuple[str, str]:
        return owner_uid, ""

    def scaler(self, scale_target: Manifest) -> str:
        return "replicas changed"
