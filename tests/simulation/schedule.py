"""What can happen in a simulated run. A schedule can be thinned item by item: each stands for itself."""

from typing import Literal

import msgspec

from simulation.queues import Manifest
from slicebus.kube.client import Propagation
from slicebus.slices.admission.sharing import FairSharing

WORKERS = ("east", "west")
ROLES = ("manager", *(f"agent-{name}" for name in WORKERS))
CONTROLLERS = "controllers"
"""Those of Kubernetes and Ray, which have a way of their own to the API servers."""
MANY_CORES = 64
"""More than all jobs together need."""
MANY_DELETES = 20
"""More jobs than a run has on one cluster: the default of the breaker."""
MANY_WRITERS = 16
"""As many as there are by default: more than most cycles have decisions."""

Seed = int | str
"""What random choices come from: a run's number, or a text that begins with it."""
Trouble = Literal["lost", "unanswered", "twice", "late", "slow", "cut", "expired"]


class Patience(msgspec.Struct, frozen=True):
    """How long pods have to get ready, in seconds; None for ever."""

    start_s: float | None = None
    recovery_s: float | None = None
    scale_up_s: float | None = None

    def __str__(self) -> str:
        """As a person reads it."""
        limits = (("start", self.start_s), ("recovery", self.recovery_s), ("scale-up", self.scale_up_s))
        return ", ".join(f"{name} {limit_s:g} s" for name, limit_s in limits if limit_s is not None) or "for ever"


NO_LIMIT = Patience()


class Item(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """One thing that happens. A new field with a default changes no encoded schedule."""

    def __str__(self) -> str:
        """As a person reads it."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        at_s = fields.pop("at_s", None)
        when = "all along" if at_s is None else f"{at_s:7.2f}"
        return f"{when:>7}  {type(self).__name__.lower()} {' '.join(f'{k}={v}' for k, v in fields.items() if v != '')}"


class Noise(Item):
    """Something goes wrong again and again on the way of one role, with a probability; `slow` is in seconds. The
    controllers are slow and nothing else."""

    role: str
    trouble: Trouble
    level: float


class Crash(Item):
    """A process of a role dies before its nth effect of the run."""

    role: str
    effect: int


class Stop(Item):
    """A process of a role is stopped before its nth effect of the run, and goes on with that effect later."""

    role: str
    effect: int
    for_s: float


class Stall(Item):
    """A process of an agent is stopped before it lets the nth pod of the run start, and lets it start when it goes on.
    Meanwhile every job of its cluster wants more pods."""

    role: str
    pod: int
    for_s: float


class Hold(Item):
    """A process is stopped before it publishes its nth message of a kind, and publishes it when it goes on. An agent:
    a heartbeat; the manager: a job's order, and meanwhile a user deletes every job."""

    role: str
    message: int
    for_s: float


class Moment(Item):
    """What happens at one moment, in seconds from the run's beginning."""

    at_s: float


class BrokerRestart(Moment):
    """The broker goes away with every connection; what was not confirmed is lost."""

    down_s: float


class ApiRestart(Moment):
    """An API server refuses connections for a while. Its watches have ended, and it remembers no history."""

    api: str
    down_s: float


class Lose(Moment):
    """A queue is deleted with everything in it, and declared anew after a while."""

    queue: str
    for_s: float


class Submit(Moment):
    """A job on the manager. One that ends has pods that succeed after a while."""

    kind: str
    name: str
    size: int = 1
    ends: bool = False
    autoscales: bool = True
    """Whether Ray's autoscaler owns its size: then it is not changed on the manager."""
    queue: str = "batch"
    priority: str = ""
    partial: bool = False
    """Whether it takes a part of a scale-up."""
    ttl_s: int | None = None
    """How long a Job stays after its end, in seconds; None for ever."""
    second: int | None = None
    """The replicas of a Ray cluster's second group; None for one group."""
    hosts: int = 1
    """Of the second group."""
    completions: int | None = None
    """Of a Job that does not end by itself; None for none."""
    deadline_s: int | None = None
    """After how many seconds KubeRay ends a RayJob; None for never."""
    fixed: bool = False
    """Whether it has no elastic annotation."""
    gang: bool = False
    """Whether it chooses the gang scheduler."""
    indexed: bool = False
    """Whether each pod of a Job has an index, and its completions follow its size."""
    follow: str = ""
    """What an Indexed Job says of whether its completions follow its pods; empty for nothing."""
    bare: bool = False
    """Whether its pods request no cpu."""
    sandboxed: bool = False
    """Whether its pods have a RuntimeClass."""
    least: int | None = None
    """How many pods of each group it keeps at least, where it can lose some."""
    notice: str = ""
    """How long before it loses pods it wants to be told; empty for not at all."""
    most: int | None = None
    """Up to how many pods of each group it takes quota that nobody waits for."""
    time_s: int | None = None
    """For how many seconds it may have quota in all."""


class Scale(Moment):
    """Some job is given another size, where it runs or on the manager; several sizes are a scaler that flaps."""

    api: str
    pick: int
    counts: tuple[int, ...]
    group: int = 0
    """Of a Ray cluster that has so many; else it is the last one."""


class Edit(Moment):
    """The pods of some Ray cluster shall request more or less, on the manager: no size, and no resize."""

    kind: str
    pick: int
    cpu: str


class Rebound(Moment):
    """The least and the most replicas of some Ray cluster's first group are others, on the manager."""

    kind: str
    pick: int
    least: int
    most: int


class Succeed(Moment):
    """Some pods of a Job succeed, on whatever cluster it runs."""

    pick: int
    count: int = 1


class Stick(Moment):
    """Pods that are let go on a cluster do not get ready for a while."""

    cluster: str
    for_s: float


class Upgrade(Moment):
    """Some RayService gets another cluster, where it runs; or a user edits it on the manager."""

    pick: int
    at: Literal["worker", "manager: cluster", "manager: applications"] = "worker"


class Delete(Moment):
    """Some job of a kind is deleted; `again`: and created under the same name at once."""

    api: str
    kind: str
    pick: int
    again: bool = False


class DeleteMany(Moment):
    """A user deletes every job of a queue, or all jobs, one right after the other, on the manager or where they run."""

    api: str = "manager"
    queue: str = ""
    propagation: Propagation = "Background"
    again: bool = False
    """Whether as many jobs are created under the same names, as soon as these are free."""


class NamespaceGoes(Moment):
    """Somebody deletes the namespace of the jobs, with everything in it, on the manager or on a worker."""

    api: str
    back_s: float | None
    """How much later it is made again; None for never."""


class DefinitionComes(Moment):
    """The definition of a kind comes, on the manager's cluster or on a worker; the roles started without it."""

    api: str
    kind: str


class DefinitionGoes(Moment):
    """Somebody removes the definition of a kind, with every object of it, and brings it back later."""

    api: str
    kind: str
    back_s: float


class CleanUp(Moment):
    """Somebody deletes what has ended on a cluster, for a while, without asking the manager."""

    cluster: str
    for_s: float


class Squat(Moment):
    """A user's own Job on a worker, under a name that the manager uses too; it goes again after a while."""

    api: str
    name: str
    for_s: float


class Quota(Moment):
    """Another quota of a queue or a cohort, in one flavor."""

    cpu: int
    of: str = "batch"
    flavor: str = "reserved"
    borrowing: int | None = None
    lending: int | None = None


class Join(Moment):
    """A queue or a cohort belongs to another cohort, or to none."""

    who: str
    cohort: str


class Reshard(Moment):
    """The manager is deployed anew with another number of shards: one process after the other ends, and begins."""

    shards: int


class Prioritize(Moment):
    """Some job of a kind gets another priority class, or none."""

    kind: str
    pick: int
    priority: str


class OptOut(Moment):
    """Some job of a kind gets another queue label, or loses it, and its elastic annotation says this."""

    kind: str
    pick: int
    queue: str
    elastic: bool


class Revalue(Moment):
    """A priority class gets another value."""

    priority: str
    value: int


class Policy(Moment):
    """Whom the jobs of a queue may preempt from now on, and how it picks flavors."""

    queue: str
    spec: Manifest


class StopQueue(Moment):
    """The ClusterQueue or the LocalQueue is stopped for a while."""

    kind: Literal["ClusterQueue", "LocalQueue"]
    queue: str
    policy: Literal["Hold", "HoldAndDrain"]
    for_s: float


class Deactivate(Moment):
    """Some slice is deactivated for a while."""

    pick: int
    for_s: float


class Cordon(Moment):
    """A cluster takes nothing new for a while."""

    cluster: str
    for_s: float


class Drain(Moment):
    """All jobs of a cluster have to go elsewhere, for a while."""

    cluster: str
    for_s: float


class Nodes(Moment):
    """The nodes of a cluster are smaller for a while: what runs goes on."""

    cluster: str
    cpu: int
    for_s: float


class Cut(Moment):
    """A cluster's agents do not reach the broker for a while. The cluster goes on, and some of its pods fail."""

    cluster: str
    for_s: float


class Forge(Moment):
    """The user of one cluster says again what another cluster has said, in that one's name."""

    of: str
    by: str
    pick: int


class Impostor(Moment):
    """Another cluster has an agent of the name of one for a while; `restored`: and copies of that one's jobs."""

    of: str
    for_s: float
    restored: bool


TROUBLES = (Noise, Crash, Stop, Stall, Hold, BrokerRestart, ApiRestart, Lose, Cut, Impostor)
"""What goes wrong, as opposed to what somebody does."""


def other_of(name: str) -> str:
    """The API server of the cluster whose agent has the name of another one."""
    return f"other-{name}"


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run: what it is played with, and what happens in it."""

    seed: int
    standbys: tuple[str, ...]
    """The roles that have a second process."""
    inventory_s: float
    """How often the agents tell unasked what they hold; practically never on runs when nothing shall heal by itself."""
    items: tuple[Item, ...]
    fair_sharing: FairSharing = FairSharing.OFF
    cores: int = MANY_CORES
    """Of each node until the faults end. Each cluster has one in each flavor."""
    admission_writers: int = MANY_WRITERS
    """How many decisions of the admission the manager writes at once. With one, decisions wait in every cycle."""
    patience: Patience = NO_LIMIT
    """How long the manager waits for pods to get ready."""
    breaker_count: int = MANY_DELETES
    """How many jobs of a cluster may be deleted within a minute that nobody has asked to delete."""
    replica_labels: bool = True
    """Whether KubeRay labels the pods of a replica of several hosts, as since 1.6, or not, as in 1.4 and 1.5."""
    fixed_jobs: bool = False
    """Whether the manager runs jobs without the elastic annotation, at a fixed size."""
    shards: int = 1
    """How many shards the manager has. With several the two cohorts are trees of their own, and no cluster is given
    up."""
    gangs: bool = False
    """Whether the workers have a gang scheduler, and their agents know it."""

    def with_items(self, items: tuple[Item, ...]) -> "Schedule":
        """The same run with other items."""
        return msgspec.structs.replace(self, items=items)

    def __str__(self) -> str:
        """As a person reads it."""
        head = f"standbys: {', '.join(self.standbys) or 'none'}; inventories every {self.inventory_s:g} s"
        head += f"; fair sharing: {self.fair_sharing}; nodes of {self.cores} cores"
        head += f"; pods get ready: {self.patience}"
        head += f"; {self.admission_writers} at once of the admission's writes; breaker at {self.breaker_count}"
        head += f"; KubeRay {'labels' if self.replica_labels else 'does not label'} replicas"
        head += "; jobs of a fixed size are run" if self.fixed_jobs else ""
        head += f"; {self.shards} shards" if self.shards > 1 else ""
        head += "; workers have a gang scheduler" if self.gangs else ""
        return "\n".join([head, *map(str, self.items)])


SHORT = Schedule(
    seed=0,
    standbys=(),
    inventory_s=1e6,
    items=(
        Submit(at_s=0.0, kind="Job", name="a"),
        Scale(at_s=3.0, api="east", pick=0, counts=(3,)),
        Scale(at_s=6.0, api="east", pick=0, counts=(1,)),
        Scale(at_s=9.0, api="manager", pick=0, counts=(2,)),
        Delete(at_s=12.0, api="manager", kind="Job", pick=0, again=True),
    ),
)
"""One job's life, and that of the next with its name."""
