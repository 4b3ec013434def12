"""The interface of a job kind, and what every kind shares."""

from typing import Any, Protocol

import msgspec

from slicebus.proto.messages import Counts, JobPhase

Manifest = dict[str, Any]


class Problem(msgspec.Struct, frozen=True):
    """Why a job cannot be taken, for a condition and an Event."""

    reason: str
    """CamelCase."""
    message: str


class Outcome(msgspec.Struct, frozen=True):
    """Where a job stands by its own status."""

    phase: JobPhase
    message: str = ""


class Placement(msgspec.Struct, frozen=True):
    """Where the pods of one pod set may run, and with what."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Manifest, ...] = ()
    labels: dict[str, str] = {}
    """By which the pods of a kind are found, beside its own."""
    resources: dict[str, Manifest] = {}
    """What containers request, by their name: what the slice is charged for, not what the job asks for by now."""


class JobKind(Protocol):
    """One kind of elastic job, with `spec.suspend`. Every method is a pure function of the manifests it is given.

    A job's counts are in the spec of its *carrier*: the job itself, or on a worker the child RayCluster of a RayJob.
    """

    api_version: str
    kind: str
    needs: tuple[str, ...]
    """Other kinds that a worker must serve for a job of this one."""

    def pod_sets(self, job: Manifest) -> list[Manifest]:
        """The `spec.podSets` of the job's Workload (name, count, template), in the kind's order."""

    def counts(self, job: Manifest, scale_target: Manifest) -> Counts:
        """Pods by pod set that the carrier wants now. For a multi-host Ray group these are pods, not replicas."""

    def problems(self, job: Manifest) -> list[Problem]:
        """Why the job cannot be taken at all; empty for a job that can."""

    def worker_copy(self, job: Manifest, placements: dict[str, Placement]) -> Manifest:
        """The job as it is created on a worker, with name, namespace, labels and annotations as only metadata.

        No queue name, no managedBy, not suspended, no status, nothing that deletes the copy after its end; in every pod
        template the elastic gate, the pod set's name as a label, and the placement of its pod set.
        """

    def resize(self, scale_target: Manifest, counts: Counts) -> list[Manifest]:
        """The JSON patch that gives a carrier these counts; empty when it has them or must not be written to."""

    def with_counts(self, job: Manifest, counts: Counts) -> Manifest:
        """The job with these counts in its own spec. Pod sets that it has not are passed over; whole replicas only."""

    def autoscaled(self, job: Manifest) -> Manifest:
        """The job with the Ray autoscaler on; one that has no such thing as it is."""

    def mirrored_status(self, job: Manifest, reported: Manifest) -> Manifest:
        """The status for the manager's job, as near to the worker's as its API server takes it."""

    def running_status(self, reported: Manifest) -> Manifest:
        """The worker's status for the manager's job, so that a Kueue there takes the job as active, whatever it is."""

    def suspended_status(self, status: Manifest, *, active: bool, now: str) -> Manifest:
        """The status of the manager's suspended job. `active` is kept until no pod of the job can be left."""

    def outcome(self, job: Manifest) -> Outcome:
        """Whether the job runs, succeeded or failed, by its status."""

    def child(self, job: Manifest) -> str | None:
        """The name of the RayCluster that carries the counts and the pods of a job on a worker; None if it does."""

    def pod_selectors(self, job: Manifest) -> list[dict[str, str]]:
        """Labels by which a worker's pods belong to the job: those of any entry."""

    def replica_size(self, scale_target: Manifest, pod_set: str) -> int:
        """How many pods of a pod set start and stop together."""

    def scaler(self, scale_target: Manifest) -> str:
        """Who changes the counts, in a few words, for people."""
