"""What agents say to the manager."""

from enum import StrEnum
from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

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
    counts_text,
)


class Hello(Message, frozen=True, kw_only=True):
    """An agent has taken its lease and speaks from now on. Nobody says or reads `scheduler_backends` yet."""

    type: ClassVar[str] = "hello"
    direction: ClassVar[Direction] = Direction.UP
    not_redriven: ClassVar[str] = "an agent says it when it starts"

    agent_version: str
    kubernetes_version: str
    schema_version: str
    scheduler_backends: list[str] = msgspec.field(default_factory=list)

    def summary(self) -> str:
        """One line for people."""
        return f"agent {self.agent_version}, Kubernetes {self.kubernetes_version}"


class Heartbeat(Message, frozen=True, kw_only=True):
    """The agent is alive. Quantities are Kubernetes quantities, by flavor and resource."""

    type: ClassVar[str] = "heartbeat"
    direction: ClassVar[Direction] = Direction.UP
    not_redriven: ClassVar[str] = "an agent says it every few seconds"

    capacity: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """Allocatable of ready, schedulable nodes, by flavor (empty name: all nodes) and resource."""
    used: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """Requests of pods bound to those nodes, by flavor and resource."""
    ours: dict[str, dict[str, str]] | UnsetType = UNSET
    """Of `used`, the pods that are within what their job was granted in that flavor: the manager has these in its own
    account. Not set by an agent that does not tell them apart."""
    terms: str | UnsetType = UNSET
    """The version of the `terms` that the agent goes by. Not set before the first."""
    said_s: float | UnsetType = UNSET
    """When it was said, by a clock of the agent's own; it comes back in the `terms` that answer it."""
    fence_s: float | UnsetType = UNSET
    """The fence that the agent keeps, also after a restart: 0 without one."""
    jobs: Count = 0
    """Objects with our origin."""
    lag_s: float = 0.0
    """Age of the oldest thing that the agent still has to do, in seconds; 0 when nothing waits."""
    out_of_sync: Count = 0
    """Jobs that are not at the newest version that this process was ordered."""

    def summary(self) -> str:
        """One line for people."""
        return f"{self.jobs} jobs, {self.out_of_sync} out of sync"


class ScaleRequest(JobMessage, frozen=True, kw_only=True):
    """A job on the worker wants another size."""

    type: ClassVar[str] = "scale-request"
    direction: ClassVar[Direction] = Direction.UP

    workload: str
    """The slice that the worker's job names now."""
    worker_uid: str
    """UID of the object that carries the counts: the job, or the child RayCluster of a RayJob."""
    worker_generation: Count
    """Its metadata.generation. (worker_uid, worker_generation) is the idempotency key and, within a UID, the order."""
    granted: Counts
    """What the worker's pods could use when the wish came up."""
    wanted: Counts
    why: str = ""
    """Who asked, in a few words: `parallelism changed`, `ray autoscaler`."""

    def summary(self) -> str:
        """One line for people."""
        return f"{counts_text(self.granted)} -> {counts_text(self.wanted)} ({self.why})"


class RequestKey(msgspec.Struct, frozen=True):
    """Which scale request. Empty and 0 for none."""

    worker_uid: str = ""
    worker_generation: Count = 0


class PodSetStatus(msgspec.Struct, frozen=True):
    """Pods of one pod set, as the agent counts them."""

    ready: Count = 0
    gated: Count = 0
    total: Count = 0


class JobPhase(StrEnum):
    """Where the worker's copy stands, in the terms that the manager decides by."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    GONE = "Gone"
    """Somebody other than the agent removed the job from the worker. It may have ended before: see `seen`."""


class Status(JobMessage, frozen=True, kw_only=True):
    """The worker's job, as it stands. A newer one of the same job replaces an older one."""

    type: ClassVar[str] = "status"
    direction: ClassVar[Direction] = Direction.UP
    lane: ClassVar[Lane] = Lane.STATUS
    not_redriven: ClassVar[str] = "the manager asks for one that differs"

    workload: str
    spec_version: Count
    """Applied on the worker."""
    phase: JobPhase
    message: str = ""
    job_status: Manifest = msgspec.field(default_factory=dict)
    """`.status` of the worker's job, verbatim."""
    pods: dict[str, PodSetStatus] = msgspec.field(default_factory=dict)
    seen: bool | UnsetType = UNSET
    """Of a job that is gone: whether the agent saw it go before it had ended. Else it may have ended unseen."""

    def summary(self) -> str:
        """One line for people."""
        if self.phase is JobPhase.GONE:
            return f"{self.phase}, {'seen to go' if self.seen is True else 'its end is unknown'}"
        ready = counts_text({name: pods.ready for name, pods in self.pods.items()})
        gated = sum(pods.gated for pods in self.pods.values())
        return f"{self.phase}, ready {ready}, gated {gated}, version {self.spec_version}"


class Applied(JobMessage, frozen=True, kw_only=True):
    """The worker's objects are at this version; everything older is done with."""

    type: ClassVar[str] = "applied"
    direction: ClassVar[Direction] = Direction.UP

    workload: str
    """The slice that the worker's job names; empty after a delete."""
    spec_version: Count
    deleted: bool = False

    def summary(self) -> str:
        """One line for people."""
        done = "deleted" if self.deleted else self.workload or "nothing"
        return f"{done}, version {self.spec_version}"


class Refused(JobMessage, frozen=True, kw_only=True):
    """The worker could not apply a message, and will not without a change."""

    type: ClassVar[str] = "refused"
    direction: ClassVar[Direction] = Direction.UP

    workload: str
    spec_version: Count
    reason: str
    """CamelCase, for a condition: `JobExists`, `Invalid`, `Forbidden`."""
    message: str

    def summary(self) -> str:
        """One line for people."""
        return f"{self.reason}: {self.message}"


class InventoryItem(msgspec.Struct, frozen=True, array_like=True):
    """One job on the worker, as hashes; an array, because there are many. The README says what is hashed."""

    kind: JobKindName
    namespace: Namespace
    name: JobName
    uid: str
    """As in a `JobRef`; the kind says the API version."""
    spec_version: Count
    """Applied on the worker."""
    spec_hash: str
    """Of what the worker holds, the slice's name among it. Empty while the job is gone and that is being reported."""
    status_hash: str
    """Of the job's status. Empty while the job is going."""


class Inventory(Message, frozen=True, kw_only=True):
    """One page of what the worker holds, its body below 128 KiB. An inventory is complete when the page that is `last`
    was seen with every page before it; until then it says nothing."""

    type: ClassVar[str] = "inventory"
    direction: ClassVar[Direction] = Direction.UP
    lane: ClassVar[Lane] = Lane.STATUS
    not_redriven: ClassVar[str] = "an agent says it when it is asked"

    round: Count
    """Counts the inventories of the envelope's epoch: pages of one epoch and round belong together."""
    page: Count
    last: bool
    items: list[InventoryItem]
    unanswered: dict[str, RequestKey] | UnsetType = UNSET
    """Of jobs among the items, by their UID: the newest request, where the broker has it and no order has answered it.
    Not set where there is none."""

    def summary(self) -> str:
        """One line for people."""
        return f"page {self.page}, {len(self.items)} jobs"
