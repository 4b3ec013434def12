"""What a decision about one job of the worker may look at."""

from functools import cached_property
from typing import Self

import msgspec

from slicebus.agent import marks
from slicebus.proto.messages import JobPhase, JobRef, Manifest, RequestKey
from slicebus.slices import kueue
from slicebus.slices.jobs import KINDS
from slicebus.slices.ungate import PodSets, by_pod_set


class JobKey(msgspec.Struct, frozen=True, order=True):
    """A job on the worker. Jobs of the manager that have one name after the other share it."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, job: JobRef) -> Self:
        """The worker's job of one of the manager's."""
        return cls(job.kind, job.namespace, job.name)

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


class Tombstone(msgspec.Struct, frozen=True):
    """The end of one job of the manager."""

    job: JobRef
    version: int
    at_s: int
    """Unix time."""


class WorkerView(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One job with everything that belongs to it. Manifests are read-only."""

    key: JobKey
    job: Manifest | None
    """Whatever has the name, ours or not."""
    carrier: Manifest | None = None
    """The object whose spec has the counts; None while a RayJob has no cluster yet."""
    copies: tuple[Manifest, ...] = ()
    """Workloads that the agent made for the job."""
    pods: tuple[Manifest, ...] = ()
    """Of a job that is gone those that its name tells of."""
    unanswered: tuple[Manifest, ...] = ()
    """Pods that may have been let start, or not, as they were before. Among `pods` they have no gate."""
    published: RequestKey | None = None
    """The last request that the broker has confirmed to this process; it may not be on the job yet."""

    @cached_property
    def pod_sets(self) -> PodSets:
        """The pods that have not ended."""
        return by_pod_set(self.pods)

    @cached_property
    def running(self) -> set[str]:
        """UIDs of the manager's jobs that have pods running here under this name, be the jobs still there or not."""
        pods = (pod for members in self.pod_sets.values() for pod in members.running)
        return {uid for pod in pods if (uid := pod["metadata"].get("labels", {}).get(kueue.MANAGER_UID_LABEL))}

    @cached_property
    def runs(self) -> bool:
        """Whether the job is ours, and neither going, suspended nor over."""
        job = self.job
        return (
            job is not None
            and marks.is_ours(job)
            and "deletionTimestamp" not in job["metadata"]
            and not job["spec"].get("suspend")
            and not marks.is_suspended(job)
            and KINDS[self.key.kind].outcome(job).phase is JobPhase.RUNNING
        )
