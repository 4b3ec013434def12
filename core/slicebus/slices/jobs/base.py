"""Defines the interface of a job kind, and what every kind shares."""

from collections.abc import Collection, Mapping, Sequence
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
    """Says why a job cannot be taken, for a condition and an Event."""

    reason: str
    """CamelCase."""
    message: str


class Outcome(msgspec.Struct, frozen=True):
    """Says where a job stands by its own status."""

    phase: JobPhase
    message: str = ""


class Placement(msgspec.Struct, frozen=True):
    """Says where the pods of one pod set may run, and with what."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Manifest, ...] = ()
    labels: dict[str, str] = {}
    """Labels by which the pods of a kind are found, beside its own."""
    resources: dict[str, Manifest] = {}
    """What containers request, by their name, as the slice is charged for it: the job may ask for more by now."""
    scheduling: PodScheduling = PodScheduling()
    """The fields by which its scheduler knows a pod."""


class Exposure(msgspec.Struct, frozen=True):
    """Says how a job's controller lets others reach its pods."""

    service_types: frozenset[str] = frozenset()
    """The types of the Services that it makes."""
    external_ips: bool = False
    """Whether a Service claims addresses of the cluster's network."""
    ingress: bool = False
    """Whether it makes an Ingress."""
    gateway: bool = False
    """Whether it makes a Gateway and its routes."""
    service_names: frozenset[str] = frozenset()
    """The names of Services that the job gives, other than those that its controller would give them."""
    makes_account: bool = False
    """Whether it makes a service account for the job's head, or gives the head's account more rights, for Ray's
    autoscaler: to change pods and RayClusters of the namespace."""
    labels: dict[str, str] = {}
    """What the job gives its Services."""
    annotations: dict[str, str] = {}


class Refusal(msgspec.Struct, frozen=True):
    """Shows in the status of a kind why a job is refused.

    With `conditions` it is a condition. Without, `status.message` and `status.reason` say it, and an annotation says
    that slicebus leaves the job alone.
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
    wanted = kueue.MANAGED_BY_MULTIKUEUE
    return "" if job["spec"].get("managedBy") == wanted else f"its spec.managedBy is not {wanted}"


class JobKind(Protocol):
    """One kind of elastic job. Every method is a pure function of its arguments.

    The spec of a job's *scale target* holds its counts: that is the job itself, or a RayJob's RayCluster on a worker.
    """

    resource: Resource
    """Where it is served. The caches and the permissions of both roles come of it."""
    owner_labels: tuple[str, ...]
    """The labels of pods whose value is the name of their job."""
    child_kind: str
    """The job kind of the scale target, where that is not the job itself; a worker has to serve it too. Else empty."""
    pod_owners: frozenset[str] | None
    """The kinds of objects, beside the job and its scale targets, whose controllers make its pods. None where nobody
    knows them: then some may be named after the job, as ReplicaSets are."""
    refusal: Refusal
    """How its status says why a job is refused."""
    ends_with_pods: bool
    """Whether a job that shows its end has no pods left, but for those that are ending."""

    suspend_path: Path | None
    """Where a job says that it is suspended. None where it cannot be: one that loses its quota is then deleted on its
    worker, and made anew when it has quota again."""

    def lacks_dispatch(self, job: Manifest) -> str:
        """What the manager's job needs, and has not, so that no controller of the manager's own cluster runs it, as a
        clause; empty where it has everything."""

    def pod_sets(self, job: Manifest) -> list[Manifest]:
        """The `spec.podSets` of the job's Workload (name, count, template), in the kind's order."""

    def templates(self, job: Manifest, scale_target: Manifest) -> dict[str, Manifest]:
        """The pod templates that the two objects themselves have, by pod set: without what controllers add to pods."""

    def pod_set_of(self, labels: dict[str, str]) -> str:
        """The pod set of a pod by the labels that the kind's own controller gives it; empty where they do not say."""

    def counts(self, job: Manifest, scale_target: Manifest) -> Counts:
        """Pods by pod set that the scale target wants now. For a multi-host Ray group these are pods, not replicas."""

    def most(self, job: Manifest) -> Counts:
        """The most pods by pod set that the job's spec allows, whatever anybody scales; a pod set without a bound is
        left out."""

    def late_pod_sets(self, job: Manifest) -> frozenset[str]:
        """Pod sets whose pods its controller makes only when others run: no gang can wait for them."""

    def finished(self, job: Manifest) -> Counts:
        """Pods by pod set that its counts have and nobody runs any more: by its status they have ended for good, or
        they never come. Empty for none."""

    def succeeded(self, status: Manifest) -> Counts:
        """Pods by pod set that have succeeded, by a job's status; they count as ready. Empty for no pod."""

    def ready(self, status: Manifest) -> int | None:
        """How many of its pods are ready, by a job's status; None where that does not tell."""

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

    def follow(self, scale_target: Manifest, job: Manifest) -> list[list[Manifest]]:
        """The JSON patches, in their order, that give a scale target the size of the manager's job, and what changes
        with the size. Empty when it has them or must not be written to."""

    def follow_next(self, job: Manifest, wanted: Manifest) -> list[Manifest]:
        """The JSON patch of the job's own spec that gives the scale target of `child_kind` which its controller makes
        next the size of `wanted`; empty when it has it, and for kinds without children."""

    def retries(self, job: Manifest) -> bool:
        """Whether its controller may replace its scale target by one that it makes of the job's own spec, after a
        failure."""

    def as_ended(self, job: Manifest, reported: Manifest) -> Manifest:
        """The manager's job with the size that its worker's had when it ended, as far as its kind's status tells that
        and may show no more than the size. Unchanged elsewhere."""

    def with_counts(self, job: Manifest, counts: Counts) -> Manifest:
        """The job with these counts in its own spec, in whole replicas. Pod sets that it has not are passed over."""

    def autoscaled(self, job: Manifest) -> Manifest:
        """The job with the Ray autoscaler on; unchanged where its kind has none."""

    def mirrored_status(self, job: Manifest, reported: Manifest) -> Manifest:
        """The status for the manager's job: the worker's, as far as the manager's API server takes it."""

    def running_status(self, reported: Manifest) -> Manifest:
        """The worker's status, changed so that a Kueue of the manager's cluster counts the job as active."""

    def suspended_status(self, status: Manifest, *, active: bool, now: str) -> Manifest:
        """The status of the manager's suspended job. `active` is kept until no pod of the job can be left."""

    def outcome(self, job: Manifest) -> Outcome:
        """Whether the job runs, succeeded or failed, by its status."""

    def children(self, job: Manifest) -> list[str] | None:
        """The names of a job's scale targets of `child_kind`, the one that serves first; empty until there is one. None
        where the job itself is its scale target. The counts of several add up."""

    def made_by(self, child: Manifest) -> str:
        """The name of the job of this kind that made an object of `child_kind`; empty when none did."""

    def own_jobs(self, job: Manifest) -> list[str]:
        """The names of batch/v1 Jobs by which the job's controller makes pods of it; empty for none."""

    def pod_selectors(self, job: Manifest) -> list[dict[str, str]]:
        """The labels by which a worker's pods belong to the job: a pod needs those of one entry."""

    def replica_size(self, scale_target: Manifest, pod_set: str) -> int:
        """How many pods of a pod set start and stop together."""

    def step(self, job: Manifest, pod_set: str) -> int:
        """How many pods the smallest resize of a pod set adds or takes; no fewer than start together."""

    def replica(self, labels: dict[str, str], owner_uid: str) -> tuple[str, str]:
        """The controller's UID, and the name of the replica with which a pod starts, by its labels and its controller.
        Without a name any pods of one controller make a replica, if they are as many."""

    def index_label(self, job: Manifest, pod_set: str) -> str:
        """The label with the number of a pod, or of its replica, where the job's controller ends those of the highest
        number; empty where it chooses otherwise. The numbers of those that stay are below the count of the job."""

    def named_for_deletion(self, scale_target: Manifest) -> frozenset[str]:
        """The names of pods that the job's controller is told to delete, whatever the counts are."""

    def name_for_deletion(self, scale_target: Manifest, names: Mapping[str, Sequence[str]]) -> list[Manifest]:
        """The JSON patch by which the controller is told to delete these pods, by pod set, and no others of theirs.
        Empty where it is told so already, or cannot be told."""

    def cap(self, scale_target: Manifest, counts: Counts | None) -> list[Manifest]:
        """The JSON patch by which Ray's autoscaler has no more pods than these where it has lost some, and gets back
        what its user allowed it; None takes every cap off. Empty where nothing changes."""

    def is_capped(self, scale_target: Manifest) -> bool:
        """Whether Ray's autoscaler is kept to fewer pods than its user allows it."""

    def enforce_cap(self, scale_target: Manifest, names: Mapping[str, Sequence[str]]) -> list[Manifest]:
        """The JSON patch by which what is capped loses these pods, by pod set, although Ray's autoscaler has not acted.
        Empty for none."""

    def least(self, job: Manifest) -> Counts:
        """The fewest pods by pod set that the job's spec allows, where it says so itself. Empty where it does not."""

    def bounds(self, job: Manifest) -> Manifest:
        """What may change beside the size while the job runs, as its user has set it: the bounds of Ray groups, the
        completions of an Indexed Job, and under `fields` the hash of each field of the spec that `take_over` takes.
        Empty for none."""

    def ends_by_size(self, job: Manifest) -> bool:
        """Whether a job ends when as many pods have succeeded as it has, as an Indexed Job with as many completions as
        pods."""

    def end_follows(self, job: Manifest) -> bool:
        """Whether the end of a job that ends by its size follows the pods that others take from it, and give it. Its
        bounds then travel with its size, and pods that have ended for good count in that. Any other job loses pods
        alone, and ends as before."""

    def said_of_end(self, job: Manifest) -> str | None:
        """What the worker's copy of a job says of that, by Kueue's annotation; None for nothing."""

    def with_pods(self, job: Manifest, counts: Counts, *, present: Manifest) -> Manifest:
        """The manager's job with these counts, which others leave it, or give it. Without `end_follows` its end is that
        of `present`, the job as it is."""

    def left_at(self, job: Manifest, size: Counts) -> Counts:
        """The pods that have yet to end of a job to which others leave this size: fewer than that where it ends by its
        size, and pods of that have ended."""

    def size_for(self, job: Manifest, left: Counts, finished: Counts) -> Counts:
        """The size at which so many pods have yet to end of a job that ends by its size. `finished` are the pods that
        have ended for good; the job's status may be older."""

    def set_bounds(self, target: Manifest, bounds: Manifest) -> list[Manifest]:
        """The JSON patch that gives a job, or the object that carries its size, these bounds. Empty where it has
        them."""

    def take_over(self, job: Manifest, copy: Manifest, fields: Collection[str]) -> list[Manifest]:
        """The JSON patch by which a worker's job takes these fields of its spec from a new copy, without its size and
        bounds. Empty where it has them."""

    def is_autoscaled(self, scale_target: Manifest) -> bool:
        """Whether Ray's autoscaler owns the size. Pods past it then run on until they are named for deletion.

        `scale_target` may be the job itself, whose spec has the size that it begins with.
        """

    def is_upgrade(self, counts: Counts) -> bool:
        """Whether these are the counts of two scale targets, one of which is to replace the other. No size of the job's
        spec has them."""

    def scaler(self, scale_target: Manifest) -> str:
        """Who changes the counts, in a few words, for people."""
