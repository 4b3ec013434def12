"""The state of a fleet at one moment, from the manager's objects as far as they could be read."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

import msgspec

from slicebus.cli.queues.rows import QueueRow, in_order
from slicebus.manager.decide.job.shown_state import ready_pods, shown_cluster, shown_state
from slicebus.manager.decide.problems import ALL, Sight, is_reached, why
from slicebus.manager.state.shown_states import ShownState
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.messages import JobRef, counts_text
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.workload import Slice

_ORDER: Mapping[ShownState, int] = {ShownState.RUNNING: 1, ShownState.SUSPENDED: 2, ShownState.UNMANAGED: 2}
_WHAT_WAITS, _WHAT_IS_OVER = 0, 3


class PodCount(msgspec.Struct, frozen=True):
    """The pods of a job that run, and those that wait behind a gate."""

    running: int = 0
    gated: int = 0

    def __add__(self, other: "PodCount") -> "PodCount":
        return PodCount(self.running + other.running, self.gated + other.gated)


class SeenCluster(msgspec.Struct, frozen=True):
    """A worker cluster, with the pods of its jobs."""

    name: str
    connected: bool | None
    """None where no manager works, who would know."""
    pods: PodCount


class SeenQuota(msgspec.Struct, frozen=True):
    """One resource of a flavor in a queue; amounts as quantities, and the share that is used."""

    queue: str
    flavor: str
    resource: str
    used: str
    nominal: str
    """Empty for a LocalQueue, which has no quota of its own."""
    share: float | None


class SeenSlice(msgspec.Struct, frozen=True):
    """One slice of a chain."""

    name: str
    counts: str
    state: str
    """`Admitted`, `Pending`, or the reason why it is finished."""
    message: str = ""


class SeenJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job: where it runs, its pods there, and its chain, oldest slice first."""

    kind: str
    namespace: str
    name: str
    cluster: str
    state: ShownState
    pods: PodCount
    slices: tuple[SeenSlice, ...]
    why: str = ""
    """Why it is not as it wants to be, where no slice says that."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet at one moment."""

    clusters: tuple[SeenCluster, ...]
    quotas: tuple[SeenQuota, ...]
    jobs: tuple[SeenJob, ...]
    """By namespace and name. Where some are left out, what waits for something comes first, and what is over last."""
    states: Mapping[ShownState, int]
    """How many jobs there are of each state, those that `jobs` leaves out too."""

    @property
    def left_out(self) -> int:
        """How many jobs `jobs` leaves out."""
        return sum(self.states.values()) - len(self.jobs)

    def job(self, name: str) -> SeenJob | None:
        """The job of that name."""
        return next((job for job in self.jobs if job.name == name), None)


def observe(
    store: ManagerStore,
    refs: Iterable[JobRef],
    count: Callable[[JobView], PodCount],
    *,
    sight: Sight = ALL,
    is_known: bool = True,
    namespace: str | None = None,
    most_lines: int | None = None,
    ended_slices: bool = False,
) -> Observation:
    """What can be seen of a fleet and these jobs, in one namespace or in all. `count` counts the pods of a job;
    `most_lines` is how many lines they have, one for each slice; `ended_slices` are those of the past. `is_known`: a
    manager works."""
    wanted = sorted({ref for ref in refs if namespace in (None, ref.namespace)}, key=_by_name)
    states, by_cluster = Counter[ShownState](), dict[str, PodCount]()
    ranks, lines = dict[JobRef, int](), dict[JobRef, int]()
    for ref in wanted:
        view = store.view(ref)
        state = shown_state(view, is_reached=is_reached(store, view, sight))
        states[state] += 1
        ranks[ref], lines[ref] = _rank(state), max(1, len(view.unfinished))
        if view.cluster:
            by_cluster[view.cluster] = by_cluster.get(view.cluster, PodCount()) + count(view)
    if most_lines is not None and sum(lines.values()) > most_lines:
        wanted = sorted(wanted, key=ranks.__getitem__)
        ends = accumulate(lines[ref] for ref in wanted)
        wanted = [ref for ref, end in zip(wanted, ends, strict=True) if end <= most_lines]
    return Observation(
        clusters=tuple(_clusters(store, by_cluster, is_known=is_known)),
        quotas=tuple(seen_quotas(store, namespace)),
        jobs=tuple(_job(store, ref, count, sight, ended_slices=ended_slices) for ref in wanted),
        states=states,
    )


def reported_pods(view: JobView) -> PodCount:
    """The pods of a job as its worker has reported them: those that are ready, and those that have no quota yet."""
    if view.holder is None:
        return PodCount()
    gated = sum(view.desired.counts.values()) - sum(view.holder.granted.values())
    return PodCount(ready_pods(view) or 0, max(0, gated))


def _by_name(ref: JobRef) -> tuple[str, str, str]:
    return ref.namespace, ref.name, ref.kind


def _rank(state: ShownState) -> int:
    return _WHAT_IS_OVER if state.is_over else _ORDER.get(state, _WHAT_WAITS)


def _clusters(store: ManagerStore, pods: Mapping[str, PodCount], *, is_known: bool) -> Iterator[SeenCluster]:
    """The WorkerClusters; for who may not see them, those that jobs are on."""
    known = {cluster.name: cluster for cluster in map(WorkerCluster.from_manifest, store.clusters.all())}
    for name in sorted(known.keys() | pods.keys()):
        connected = known[name].connected if is_known and name in known else None
        yield SeenCluster(name, connected, pods.get(name, PodCount()))


def seen_quotas(store: ManagerStore, namespace: str | None) -> Iterator[SeenQuota]:
    """What the status of each ClusterQueue shows; for who may not see them, that of the LocalQueues."""
    queues = store.cluster_queues.all() or [
        queue for queue in store.local_queues.all() if namespace in (None, queue["metadata"]["namespace"])
    ]
    for row in in_order(map(QueueRow.of, queues)):
        for use in row.use:
            yield SeenQuota(row.name, use.flavor, use.resource, use.used, use.nominal, use.share)


def _job(
    store: ManagerStore, ref: JobRef, count: Callable[[JobView], PodCount], sight: Sight, *, ended_slices: bool
) -> SeenJob:
    view = store.view(ref)
    slices = tuple(map(_seen, view.slices if ended_slices else view.unfinished))
    reason, message = why(store, view, sight)
    says_why = any(slice.message for slice in slices)
    return SeenJob(
        kind=ref.kind,
        namespace=ref.namespace,
        name=ref.name,
        cluster=shown_cluster(view),
        state=shown_state(view, is_reached=is_reached(store, view, sight)),
        pods=count(view),
        slices=slices,
        why="" if says_why else ": ".join(filter(None, (reason, message))),
    )


def _seen(slice: Slice) -> SeenSlice:
    counts = counts_text(slice.counts)
    if slice.finished:
        return SeenSlice(slice.name, counts, str(slice.conditions[Condition.FINISHED].get("reason", "Finished")))
    if slice.admitted:
        return SeenSlice(slice.name, counts, "Admitted")
    waiting = slice.conditions.get(Condition.QUOTA_RESERVED, {})
    return SeenSlice(slice.name, counts, "Pending", str(waiting.get("message", "")))


def states_text(states: Mapping[ShownState, int]) -> Iterable[str]:
    """`3 Running`, in the order of the states."""
    return [f"{states[state]} {state}" for state in ShownState if states.get(state)]
