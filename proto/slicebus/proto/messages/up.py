"""The messages from agents to the manager."""

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slicebus.proto.messages.base import (
    Count,
    Counts,
    Direction,
    JobKindName,
    JobMessage,
    JobName,
    Lane,
    Manifest,
    Message,
    Namespace,
    PodSetLabel,
    Quantity,
    Reason,
    Seconds,
    Time,
    Version,
    counts_text,
)

_NOTE_BYTES = 64 * 1024
"""A job's counts, or an API server's text, take some kilobytes."""
_HEARTBEAT_BYTES = 256 * 1024
"""A hundred flavors with ten resources each, three times, and the namespaces that are lacking."""
_PAGE_BYTES = 64 * 1024
"""A body below 32 KiB, and headers."""
_STATUS_BYTES = 64 * 1024
"""An agent cuts a status down to 56 KiB, of which the job's own has at most 32."""

POLICY_BYTES = 4 * 1024
"""Of a policy in a heartbeat. The default takes two."""
RESOURCES_LEFT_OUT = "slicebus.dev/resources-left-out"
"""In the place of a resource: how many resources are left out."""
PROBLEM_LENGTH = 500
"""Characters of what is said of one pod set's pods."""


class Hello(Message, frozen=True, kw_only=True):
    """An agent has taken its lease and speaks from now on."""

    type: ClassVar[str] = "hello"
    direction: ClassVar[Direction] = Direction.UP
    most_bytes: ClassVar[int] = _NOTE_BYTES
    not_redriven: ClassVar[str] = "an agent says it when it starts"

    agent_version: str
    kubernetes_version: str
    schema_version: str
    scheduler_backends: list[str] = msgspec.field(default_factory=list)
    """The scheduler backends that jobs can choose here; that of jobs which choose none comes first."""

    def summary(self) -> str:
        """One line for people."""
        return f"agent {self.agent_version}, Kubernetes {self.kubernetes_version}"


class Heartbeat(Message, frozen=True, kw_only=True):
    """The agent is alive. Quantities are Kubernetes quantities, by flavor and resource."""

    type: ClassVar[str] = "heartbeat"
    direction: ClassVar[Direction] = Direction.UP
    most_bytes: ClassVar[int] = _HEARTBEAT_BYTES
    not_redriven: ClassVar[str] = "an agent says it every few seconds"

    capacity: dict[str, dict[str, Quantity]] = msgspec.field(default_factory=dict)
    """Allocatable of ready, schedulable nodes, by flavor (empty name: all nodes) and resource."""
    used: dict[str, dict[str, Quantity]] = msgspec.field(default_factory=dict)
    """Requests of pods bound to those nodes, by flavor and resource."""
    ours: dict[str, dict[str, Quantity]] = msgspec.field(default_factory=dict)
    """The part of `used` by pods within the grant of their job in that flavor: the manager counts these itself."""
    terms: str | UnsetType = UNSET
    """The version of the `terms` in force on the agent. Not set before the first."""
    said_s: Seconds = 0.0
    """The time of sending by the agent's own clock; the `terms` that answer it repeat it."""
    fence_s: Seconds = 0.0
    """The fence in force on the agent, also after a restart; 0 for none."""
    lacking: dict[str, str] | UnsetType = UNSET
    """The namespaces of the `terms` that take no jobs here, with the reason: `NotFound`, `Terminating` or
    `NamespaceNotAllowed`. Not set before all of them were read."""
    container_defaults: dict[str, dict[str, str]] | UnsetType = UNSET
    """By namespace of the `terms`: what its LimitRanges have a container request that requests nothing itself. Without
    namespaces that add nothing. Not set before the LimitRanges were read."""
    pod_overheads: dict[str, dict[str, str]] | UnsetType = UNSET
    """By RuntimeClass: what each of its pods takes beside its containers. Not set before they were read."""
    policy: Manifest | UnsetType = UNSET
    """What jobs may make here, as the agent's policy says it (`ToldPolicy`), without what is the default. Not set
    where it takes more than 4 KiB."""
    scheduler_backends: list[str] = msgspec.field(default_factory=list)
    """As in `Hello`: definitions and rights come and go."""
    jobs: Count = 0
    """The number of jobs that slicebus made."""
    lag_s: Seconds = 0.0
    """Age of the agent's oldest pending work, in seconds; 0 when nothing is pending."""
    out_of_sync: Count = 0
    """Jobs that are not at the newest version that this process received."""

    def summary(self) -> str:
        """One line for people."""
        return f"{self.jobs} jobs, {self.out_of_sync} out of sync"


class ScaleRequest(JobMessage, frozen=True, kw_only=True):
    """A job on the worker wants another size."""

    type: ClassVar[str] = "scale-request"
    direction: ClassVar[Direction] = Direction.UP
    most_bytes: ClassVar[int] = _NOTE_BYTES

    workload: str
    """The slice that the worker's job names now."""
    worker_uid: str
    """UID of the object that carries the counts: the job, or the child RayCluster of a RayJob."""
    worker_generation: Version
    """Its metadata.generation. (worker_uid, worker_generation) is the idempotency key and, within a UID, the order."""
    granted: Counts
    """The counts that were granted when the request was made."""
    wanted: Counts
    finished: Counts | UnsetType = UNSET
    """Pods that have ended and that nothing replaces; not set where there are none. The wanted size is the job's
    without these."""
    why: str = ""
    """Who asked, in a few words: `parallelism changed`, `ray autoscaler`."""
    follows: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    """The `taken_back` of the `workload-spec` by which the manager has set the job's size, where nobody else has
    resized it since: what it wants is what was set. That of an earlier one where its pods are gone, while those that a
    later one takes still run."""

    def summary(self) -> str:
        """One line for people."""
        return f"{counts_text(self.granted)} -> {counts_text(self.wanted)} ({self.why})"


class RequestKey(msgspec.Struct, frozen=True):
    """Identifies a scale request; empty and 0 for none."""

    worker_uid: str = ""
    worker_generation: Version = 0


class PodSetUse(msgspec.Struct, frozen=True, array_like=True):
    """What the pods of one pod set that have no gate request where they are, as the scheduler counts it."""

    running: Count = 0
    """How many they are. Those that have ended do not count, those that are going do."""
    requests: dict[str, Quantity] = msgspec.field(default_factory=dict)
    """What they request together, as Kubernetes quantities by resource."""


class PodProblem(msgspec.Struct, frozen=True):
    """Why pods that may start do not run: the worst reason of one pod set."""

    reason: Reason
    """CamelCase, in the words of Kubernetes: `Unschedulable`, `ImagePullBackOff`."""
    message: Annotated[str, Meta(max_length=PROBLEM_LENGTH)]
    """The words of the scheduler or the kubelet, without what differs from pod to pod."""
    since: Time
    """Since when the pod set has a reason, this one or another."""


class PodSetStatus(msgspec.Struct, frozen=True):
    """Pods of one pod set, as the agent counts them."""

    ready: Count = 0
    gated: Count = 0
    total: Count = 0
    requests: dict[str, Quantity] = msgspec.field(default_factory=dict)
    """What those without a gate request together, as Kubernetes quantities by resource. Where that are too many, those
    of pods on nodes come first, and `slicebus.dev/resources-left-out` says how many are not told."""
    problem: PodProblem | UnsetType = UNSET
    """Not set where they run, or have not had the time to start."""

    @property
    def use(self) -> PodSetUse:
        """Its pods without a gate, and what they request."""
        return PodSetUse(max(0, self.total - self.gated), self.requests)


class JobPhase(StrEnum):
    """The state of the worker's copy."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    GONE = "Gone"
    """Somebody other than the agent removed the job from the worker. It may have ended before: see `seen`."""

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended by itself, well or not."""
        return self in (JobPhase.SUCCEEDED, JobPhase.FAILED)


class Waits(msgspec.Struct, frozen=True):
    """Why a job does not have the size that it wants on its worker, although it has the quota."""

    wanted: Counts
    reason: Reason
    """CamelCase: `SurplusPods`."""
    message: str
    since: Time


class Status(JobMessage, frozen=True, kw_only=True):
    """The state of the worker's job. A newer status of the job replaces an older one."""

    type: ClassVar[str] = "status"
    direction: ClassVar[Direction] = Direction.UP
    most_bytes: ClassVar[int] = _STATUS_BYTES
    lane: ClassVar[Lane] = Lane.STATUS
    not_redriven: ClassVar[str] = "the manager asks for one that differs"

    workload: str
    spec_version: Version
    """Applied on the worker."""
    phase: JobPhase
    message: str = ""
    job_status: Manifest = msgspec.field(default_factory=dict)
    """`.status` of the worker's job, verbatim."""
    pods: dict[PodSetLabel, PodSetStatus] = msgspec.field(default_factory=dict)
    seen: bool = False
    """For a job that is gone: whether the agent saw it go before it ended. Otherwise it may have ended unseen."""
    waits: Waits | UnsetType = UNSET
    """Not set where the job has its size, or asks for it."""
    gang: Counts | UnsetType = UNSET
    """The least pods by pod set that the scheduler of its gang keeps together; a pod set that is left out may lose all.
    Not set for a job that is no gang, nor while nothing was made for one."""

    @property
    def problems(self) -> dict[str, PodProblem]:
        """Why pods do not run, by pod set; without pod sets that have no reason."""
        return {name: pods.problem for name, pods in self.pods.items() if pods.problem}

    @property
    def running(self) -> Counts:
        """The pods that run, by pod set: those that have not ended and lost their gate."""
        return {name: count for name, pods in self.pods.items() if (count := pods.total - pods.gated) > 0}

    @property
    def has_left_pods(self) -> bool:
        """Whether the job has ended, and pods of it run on."""
        return self.phase.is_terminal and bool(self.running)

    def summary(self) -> str:
        """One line for people."""
        if self.phase is JobPhase.GONE:
            return f"{self.phase}, {'seen to go' if self.seen else 'its end is unknown'}"
        ready = counts_text({name: pods.ready for name, pods in self.pods.items()})
        gated = sum(pods.gated for pods in self.pods.values())
        problems = "".join(f", {name}: {problem.reason}" for name, problem in self.problems.items())
        return f"{self.phase}, ready {ready}, gated {gated}, version {self.spec_version}{problems}"


class Applied(JobMessage, frozen=True, kw_only=True):
    """The worker's objects are at this version; every older order is settled."""

    type: ClassVar[str] = "applied"
    direction: ClassVar[Direction] = Direction.UP
    most_bytes: ClassVar[int] = _NOTE_BYTES

    workload: str
    """The slice that the worker's job names; empty after a delete."""
    spec_version: Version
    deleted: bool = False

    def summary(self) -> str:
        """One line for people."""
        done = "deleted" if self.deleted else self.workload or "nothing"
        return f"{done}, version {self.spec_version}"


class Refused(JobMessage, frozen=True, kw_only=True):
    """The worker could not apply an order, and cannot without a change."""

    type: ClassVar[str] = "refused"
    direction: ClassVar[Direction] = Direction.UP
    most_bytes: ClassVar[int] = _NOTE_BYTES

    workload: str
    spec_version: Version
    reason: Reason
    """CamelCase, for a condition: `JobExists`, `Invalid`, `Forbidden`."""
    message: str

    def summary(self) -> str:
        """One line for people."""
        return f"{self.reason}: {self.message}"


class InventoryItem(msgspec.Struct, frozen=True, array_like=True):
    """One job on the worker, as hashes. It is encoded as an array to save space. The README says what is hashed."""

    kind: JobKindName
    namespace: Namespace
    name: JobName
    uid: str
    """As in a `JobRef`; the kind implies the API version."""
    spec_version: Version
    """Applied on the worker."""
    spec_hash: str
    """The hash of what the worker holds, with the slice's name. Empty while the agent reports that the job is gone."""
    status_hash: str
    """The hash of the job's status. Empty while the job is being deleted."""
    pods: dict[PodSetLabel, PodSetUse] = msgspec.field(default_factory=dict)
    """The pods that run, by pod set; without pod sets of which none runs."""


class Inventory(Message, frozen=True, kw_only=True):
    """One page of what the worker holds, with a body below 32 KiB. An inventory counts once its `last` page and every
    page before it have arrived."""

    type: ClassVar[str] = "inventory"
    direction: ClassVar[Direction] = Direction.UP
    most_bytes: ClassVar[int] = _PAGE_BYTES
    lane: ClassVar[Lane] = Lane.STATUS
    not_redriven: ClassVar[str] = "an agent says it when it is asked"

    round: Version
    """Numbers the inventories of the envelope's epoch: pages of one epoch and round belong together."""
    page: Version
    last: bool
    items: list[InventoryItem]
    unanswered: dict[str, RequestKey] | UnsetType = UNSET
    """The newest unanswered size request of each job, by its UID. Not set where there is none."""

    def summary(self) -> str:
        """One line for people."""
        return f"page {self.page}, {len(self.items)} jobs"
