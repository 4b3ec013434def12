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


class JobKind(Protocol):
    """One kind of elastic job. Every method is a pure function of the manifests it is given."""

    api_version: str
    kind: str
    plural: str

    def pod_sets(self, job: Manifest) -> list[Manifest]:
        """The `spec.podSets` of the job's Workload (name, count, template), in the kind's order."""

    def counts(self, carrier: Manifest) -> Counts:
        """Pods by pod set that an object wants now.

        `carrier` is the object whose spec holds the counts on a worker: the job itself, or the child RayCluster of a
        RayJob. For a multi-host Ray group these are pods, not replicas.
        """

    def problems(self, job: Manifest) -> list[Problem]:
        """Why the job cannot be taken at all; empty for a job that can."""

    def worker_copy(self, job: Manifest, placements: "dict[str, Placement]") -> Manifest:
        """The job as it is created on a worker, without metadata beyond name, namespace, labels and annotations.

        No queue name, no managedBy, not suspended, no status; in every pod template the elastic gate, the pod set's
        name as a label, and the flavor's node selector and tolerations.
        """

    def with_counts(self, job: Manifest, counts: Counts) -> Manifest:
        """The job's manifest with these counts in its spec: whole replicas for multi-host groups."""

    def outcome(self, job: Manifest) -> Outcome:
        """Whether the job runs, succeeded or failed, by its status."""


class Placement(msgspec.Struct, frozen=True):
    """Where the pods of one pod set may run."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Manifest, ...] = ()
