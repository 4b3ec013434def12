"""The messages: one frozen type each, with the direction it travels and the lane it travels on.

Kubernetes objects inside a message are plain dictionaries as the API server gave them, so that fields this version does
not know pass through. Counts are pods by pod set name (for a multi-host Ray group: pods, not replicas). Times are
RFC 3339 in UTC.
"""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, NewType

import msgspec
from msgspec import UNSET, Meta, UnsetType

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
CLUSTER_NAME = DNS_LABEL
"""So that the dot of a routing key separates."""
CLUSTER_UID = r"^[-0-9A-Za-z]{1,64}$"

ClusterName = NewType("ClusterName", str)
ClusterUid = NewType("ClusterUid", str)
"""The UID of a cluster's namespace kube-system: a cluster that is made anew under its old name has another."""
Count = Annotated[int, Meta(ge=0)]
Counts = dict[str, Count]
Manifest = dict[str, Any]


class Direction(StrEnum):
    """Which exchange a message travels on."""

    UP = "up"
    """Agent to manager."""
    DOWN = "down"
    """Manager to agent."""


class Lane(StrEnum):
    """Which queue of the receiver a message lands in, so that status traffic never delays a spec."""

    CONTROL = "control"
    STATUS = "status"


JobKindName = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9]{0,62}$")]
Namespace = Annotated[str, Meta(pattern=DNS_LABEL)]
JobName = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]


class JobRef(msgspec.Struct, frozen=True, order=True):
    """One job on the manager, and its copy of the same namespace and name on a worker. The unit of ordering."""

    api_version: str
    kind: JobKindName
    namespace: Namespace
    name: JobName
    uid: str
    """The UID of the manager's object. A job deleted and created again under its name is another job."""

    @property
    def key(self) -> str:
        """`Kind/namespace/name`, the CloudEvents subject."""
        return f"{self.kind}/{self.namespace}/{self.name}"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message body. Subclasses give the type, the direction and the lane."""

    type: ClassVar[str]
    direction: ClassVar[Direction]
    lane: ClassVar[Lane] = Lane.CONTROL


# --- up: agent to manager -------------------------------------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True):
    """An agent has taken its lease and speaks from now on, with the epoch of the envelope."""

    type: ClassVar[str] = "hello"
    direction: ClassVar[Direction] = Direction.UP

    agent_version: str
    kubernetes_version: str
    schema_version: str
    scheduler_backends: list[str] = []


class Heartbeat(Message, frozen=True, kw_only=True):
    """The agent is alive. Quantities are Kubernetes quantities, by flavor and resource."""

    type: ClassVar[str] = "heartbeat"
    direction: ClassVar[Direction] = Direction.UP

    capacity: dict[str, dict[str, str]] = {}
    """Allocatable of ready, schedulable nodes, by flavor (empty name: all nodes) and resource."""
    used: dict[str, dict[str, str]] = {}
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


class ScaleRequest(Message, frozen=True, kw_only=True):
    """A job on the worker wants another size."""

    type: ClassVar[str] = "scale-request"
    direction: ClassVar[Direction] = Direction.UP

    job: JobRef
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


class Status(Message, frozen=True, kw_only=True):
    """The worker's job, as it stands. A newer one of the same job replaces an older one."""

    type: ClassVar[str] = "status"
    direction: ClassVar[Direction] = Direction.UP
    lane: ClassVar[Lane] = Lane.STATUS

    job: JobRef
    workload: str
    spec_version: Count
    """Applied on the worker."""
    phase: JobPhase
    message: str = ""
    job_status: Manifest = {}
    """`.status` of the worker's job, verbatim."""
    pods: dict[str, PodSetStatus] = {}
    seen: bool | UnsetType = UNSET
    """Of a job that is gone: whether the agent saw it go before it had ended. Else it may have ended unseen."""


class Applied(Message, frozen=True, kw_only=True):
    """The worker's objects are at this version; everything older is done with."""

    type: ClassVar[str] = "applied"
    direction: ClassVar[Direction] = Direction.UP

    job: JobRef
    workload: str
    """The slice that the worker's job names; empty after a delete."""
    spec_version: Count
    deleted: bool = False


class Refused(Message, frozen=True, kw_only=True):
    """The worker could not apply a message, and will not without a change."""

    type: ClassVar[str] = "refused"
    direction: ClassVar[Direction] = Direction.UP

    job: JobRef
    workload: str
    spec_version: Count
    reason: str
    """CamelCase, for a condition: `JobExists`, `Invalid`, `Forbidden`."""
    message: str


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

    round: Count
    """Counts the inventories of the envelope's epoch: pages of one epoch and round belong together."""
    page: Count
    last: bool
    items: list[InventoryItem]
    unanswered: dict[str, RequestKey] | UnsetType = UNSET
    """Of jobs among the items, by their UID: the newest request, where the broker has it and no order has answered it.
    Not set where there is none."""


# --- down: manager to agent -----------------------------------------------------------------------------------------


class PodSetFlavor(msgspec.Struct, frozen=True):
    """Where the pods of one pod set may run: the admission's flavor, spelled out."""

    node_labels: dict[str, str] = {}
    tolerations: list[Manifest] = []


class WorkloadSpec(Message, frozen=True, kw_only=True):
    """The admitted slice and its job. Creates both on the worker where they are missing; changes counts in place."""

    type: ClassVar[str] = "workload-spec"
    direction: ClassVar[Direction] = Direction.DOWN

    job: JobRef
    spec_version: Count
    """Grows with every change of what the worker shall hold for this job, over all its slices."""
    workload: Manifest
    """The manager's Workload, with its status."""
    manifest: Manifest
    """The manager's job, without its status. When its counts are others than the last time, they are taken over: so a
    resize that starts at the manager reaches the worker."""
    granted: Counts
    flavors: dict[str, PodSetFlavor] = {}
    """By pod set."""
    answers: RequestKey | UnsetType = UNSET
    """The newest request that the manager knew. A later one that asked for less still holds the worker back. Not set
    by a manager that does not say: it is taken to know all."""


class Relabel(Message, frozen=True, kw_only=True):
    """The job moves from one slice to the next, and its pods may use the new counts."""

    type: ClassVar[str] = "relabel"
    direction: ClassVar[Direction] = Direction.DOWN

    job: JobRef
    spec_version: Count
    from_workload: str
    to_workload: str
    granted: Counts
    answers: RequestKey | UnsetType = UNSET
    """As in a `workload-spec`."""


class Suspend(Message, frozen=True, kw_only=True):
    """The job has lost its quota: its pods go, its object stays. `applied` comes when no pod is left."""

    type: ClassVar[str] = "suspend"
    direction: ClassVar[Direction] = Direction.DOWN

    job: JobRef
    spec_version: Count
    workload: str | UnsetType = UNSET
    """The slice that the job names from now on. Not set by a manager that does not say: the one that it names."""
    reason: str = ""
    message: str = ""


class Delete(Message, frozen=True, kw_only=True):
    """The worker's objects of this job go. `spec_version` is the tombstone: an older spec never brings them back."""

    type: ClassVar[str] = "delete"
    direction: ClassVar[Direction] = Direction.DOWN

    job: JobRef
    spec_version: Count
    reason: str = ""


class Pending(Message, frozen=True, kw_only=True):
    """Why the request that the worker made waits. Shown as an Event on the worker's object."""

    type: ClassVar[str] = "pending"
    direction: ClassVar[Direction] = Direction.DOWN
    lane: ClassVar[Lane] = Lane.STATUS

    job: JobRef
    workload: str
    """The pending slice; empty where the request was refused and no slice was made."""
    worker_uid: str
    worker_generation: Count
    wanted: Counts
    reason: str
    """CamelCase: `Pending` (waits for quota), `Inadmissible`, `StructuralChange`."""
    message: str
    since: str
    would_admit: str = ""
    """What would let it in, in words."""


class Resync(Message, frozen=True, kw_only=True):
    """Asks the agent for its inventory, or where it names jobs, for their statuses only, and for the requests on them
    that no order has answered."""

    type: ClassVar[str] = "resync"
    direction: ClassVar[Direction] = Direction.DOWN
    lane: ClassVar[Lane] = Lane.STATUS

    reason: str = ""
    jobs: list[JobRef] = []


class Flavor(msgspec.Struct, frozen=True):
    """A kind of nodes. A node is of the flavor when it has all of the labels, and no taint that would keep the flavor's
    pods away: each that does is among `taints`, or tolerated."""

    name: str
    node_labels: dict[str, str] = {}
    taints: list[Manifest] = []
    tolerations: list[Manifest] = []


class Heard(msgspec.Struct, frozen=True):
    """A heartbeat that has arrived."""

    epoch: int
    said_s: float


class Terms(Message, frozen=True, kw_only=True):
    """What an agent goes by, whole. Sent in answer to a `hello`, to a `heartbeat` that goes by others, and with a fence
    to every `heartbeat`."""

    type: ClassVar[str] = "terms"
    direction: ClassVar[Direction] = Direction.DOWN

    version: str
    """Another one for other terms. Says nothing of which are newer: the last that came are in force."""
    flavors: list[Flavor] = []
    """What to report capacity and use by, beside the whole cluster."""
    fence_s: float | UnsetType = UNSET
    """Where it is set, the agent lets no pod start once so long has passed since it said the heartbeat that was heard
    last: by then the manager may give its jobs to another cluster. What runs goes on."""
    heard: Heard | UnsetType = UNSET
    """The heartbeat that this answers. Not set in answer to a `hello`, nor while the cluster has still to remove jobs
    that went elsewhere."""


MESSAGES: dict[str, type[Message]] = {
    message.type: message
    for message in (
        Hello,
        Heartbeat,
        ScaleRequest,
        Status,
        Applied,
        Refused,
        Inventory,
        WorkloadSpec,
        Relabel,
        Suspend,
        Delete,
        Pending,
        Resync,
        Terms,
    )
}
"""Every message by its type."""
