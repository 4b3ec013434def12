"""The interface of a job kind, and what every kind shares."""

from collections.abc import Collection
from typing import Any, Protocol

import msgspec

from slicebus.proto.messages import Counts, JobPhase
from slicebus.slices.api import kueue
from slicebus.slices.api.conditions import Finding, has_finding, with_findings
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs.paths import Path
from slicebus.slices.workload.pod_scheduling import PodScheduling

Manifest = dict[str, Any]

SUSPEND_PATH: Path = ("spec", "suspend")
"""Where most kinds say that a job is suspended."""


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
    scheduling: PodScheduling = PodScheduling()
    """By what its scheduler knows a pod."""


class Exposure(msgspec.Struct, frozen=True):
    """How a job's controller lets others reach its pods."""

    service_types: frozenset[str] = frozenset()
    """The types of the Services that it makes."""
    external_ips: bool = False
    """Whether a Service claims addresses of the cluster's network."""
    ingress: bool = False
    """Whether it makes an Ingress."""
    labels: dict[str, str] = {}
    """What the job gives its Services."""
    annotations: dict[str, str] = {}


class Refusal(msgspec.Struct, frozen=True):
    """How the status of a kind says why a job is refused.

    With `conditions` it is a condition. Without, `status.message` and `status.reason` say it, and an annotation says
    of a job that slicebus leaves it alone.
    """

    conditions: bool = True

    def status(self, job: Manifest, finding: Finding, *, now: str) -> Manifest:
        """The part of the job's status that shows a finding. A merge patch replaces the whole list of conditions."""
        if not self.conditions:
            return {"message": finding.message, "reason": finding.reason}
        if has_finding(job, finding):
            return {"conditions": job["status"]["conditions"]}
        return {"conditions": with_findings(job, finding, now=now)}


def lacks_managed_by(job: Manifest) -> str:
    """As `JobKind.lacks_dispatch`, for kinds whose controllers leave a job with another `spec.managedBy` alone."""
    found = job["spec"].get("managedBy")
    return "" if found == kueue.MANAGED_BY_MULTIKUEUE else f"its spec.managedBy is not {kueue.MANAGED_BY_MULTIKUEUE}"


class JobKind(Protocol):
    """One kind of elastic job. Every method is a pure function of the manifests it is given.

    The spec of a job's *scale target* holds its counts: that is the job itself, or a RayJob's RayCluster on a worker.
    """

    resource: Resource
    """Where it is served. The caches and the permissions of both roles come of it."""
    owner_labels: tuple[str, ...]
    """Labels of pods whose value is the name of a job of this kind."""
    child_kind: str
    """The job kind of the scale target, where that is not the job itself; a worker has to serve it too. Else empty."""
    late_pod_sets: frozenset[str]
    """Pod sets whose pods its controller makes only when others run: no gang can wait for them."""
    refusal: Refusal
    """How its status says why a job is refused."""

    suspend_path: Path | None
    """Where a job says that it is suspended. None where it cannot be: one that loses its quota is then deleted on its
    worker, and made anew when it has quota again."""

    def lacks_dispatch(self, job: Manifest) -> str:
        """What the manager's job lacks so that no controller of the manager's own cluster runs it, as a clause; empty
        where it lacks nothing."""

    def pod_sets(self, job: Manifest) -> list[Manifest]:
        """The `spec.podSets` of the job's Workload (name, count, template), in the kind's order."""

    def counts(self, job: Manifest, scale_target: Manifest) -> Counts:
        """Pods by pod set that the scale target wants now. For a multi-host Ray group these are pods, not replicas."""

    def finished(self, job: Manifest) -> Counts:
        """Pods by pod set that its counts have and nobody will run any more: by its status they have ended and none
        comes in their place, or they never come. Empty for none."""

    def succeeded(self, status: Manifest) -> Counts:
        """Pods by pod set that have succeeded, by a job's status; they count as ready. Empty for none."""

    def problems(self, job: Manifest) -> list[Problem]:
        """Why the job cannot be taken at all; empty for a job that can."""

    def worker_copy(self, job: Manifest, placements: dict[str, Placement]) -> Manifest:
        """The job as it is created on a worker, with name, namespace, labels and annotations as only metadata.

        No queue name, no managedBy, not suspended, no status, nothing that deletes the copy after its end; in every pod
        template the elastic gate, the pod set's name as a label, and the placement of its pod set.
        """

    def exposure(self, job: Manifest) -> Exposure:
        """How the job's controller lets others reach its pods; `Exposure()` where it makes neither Service nor
        Ingress."""

    def resize(self, scale_target: Manifest, counts: Counts) -> list[Manifest]:
        """The JSON patch that gives a scale target these counts; empty when it has them or must not be written to."""

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

    def children(self, job: Manifest) -> list[str] | None:
        """The names of a job's scale targets of `child_kind`, the one that serves first; empty until there is one. None
        where the job is its own. The counts of several add up."""

    def made_by(self, child: Manifest) -> str:
        """The name of the job of this kind that made an object of `child_kind`; empty when none did."""

    def own_jobs(self, job: Manifest) -> list[str]:
        """The names of batch/v1 Jobs by which the job's controller makes pods of it; empty for none."""

    def pod_selectors(self, job: Manifest) -> list[dict[str, str]]:
        """Labels by which a worker's pods belong to the job: those of any entry."""

    def replica_size(self, scale_target: Manifest, pod_set: str) -> int:
        """How many pods of a pod set start and stop together."""

    def replica(self, labels: dict[str, str], owner_uid: str) -> tuple[str, str]:
        """The controller's UID, and the name of the replica that a pod starts with, by its labels and its controller.
        Without a name any pods of one controller are a replica, if they are as many."""

    def named_for_deletion(self, scale_target: Manifest) -> frozenset[str]:
        """The names of pods that the job's controller is told to delete, whatever the counts are."""

    def bounds(self, job: Manifest) -> Manifest:
        """What may change beside the size while the job runs, as its user has set it: what an autoscaler goes by, and
        under `fields` the hash of each field of the spec that `take_over` takes. Empty for none."""

    def set_bounds(self, target: Manifest, bounds: Manifest) -> list[Manifest]:
        """The JSON patch that gives a job, or the object that carries its size, these bounds. Empty where it has
        them."""

    def take_over(self, job: Manifest, copy: Manifest, fields: Collection[str]) -> list[Manifest]:
        """The JSON patch by which a worker's job takes these fields of its spec from a copy that was made anew, but for
        its size and bounds. Empty where it has them."""

    def is_autoscaled(self, scale_target: Manifest) -> bool:
        """Whether Ray's autoscaler owns the size. Pods past it then run on until they are named for deletion.

        `scale_target` may be the job itself, whose spec has the size that it begins with.
        """

    def is_upgrade(self, counts: Counts) -> bool:
        """Whether these are the counts of two scale targets, one of which is to take the other's place. No size of the
        job's spec has them."""

    def scaler(self, scale_target: Manifest) -> str:
        """Who changes the counts, in a few words, for people."""
