"""Jobs as rows of `slicebus jobs`."""

from collections.abc import Iterable, Iterator

import msgspec

from slicebus.cli.cluster.listing import Column
from slicebus.cli.durations import age_of
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.decide.job.shown_state import ready_pods, shown_cluster, shown_state
from slicebus.manager.decide.problems import ALL, Sight, is_reached, why
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.requirements import is_nearly_managed, is_reported_unmanaged
from slicebus.manager.state.shown_states import ShownState
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import Counts, JobRef, counts_text


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job."""

    namespace: str
    name: str
    kind: str
    state: ShownState
    queue: str
    """Its LocalQueue; empty for none."""
    cluster_queue: str
    priority: int | None
    """That of its newest slice; null where it has none yet."""
    cluster: str
    """The worker cluster that has it, or shall have it; empty for none, and without quota."""
    wanted: Counts
    granted: Counts
    ready: int | None
    """Ready pods, as its worker has reported them; null where nobody has, or its cluster is silent."""
    created: str
    """RFC 3339."""
    reason: str
    """Why it is not as it wants to be, in one word; empty where nothing is wrong."""
    message: str

    @property
    def resource_name(self) -> str:
        """Its name for kubectl."""
        resource = JOB_RESOURCES[self.kind]
        return f"{'.'.join(filter(None, (self.kind.lower(), resource.group)))}/{self.name}"

    @property
    def key(self) -> str:
        """`Kind/namespace/name`."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def why(self) -> str:
        """Reason and message."""
        return ": ".join(filter(None, (self.reason, self.message)))

    @classmethod
    def of(cls, store: ManagerStore, ref: JobRef, sight: Sight = ALL) -> "JobRow":
        """The row of a job, or of one that is gone and has left Workloads."""
        view = store.view(ref)
        state = shown_state(view, is_reached=is_reached(store, view, sight))
        reason, message = why(store, view, sight)
        oldest = view.slices[0].created if view.slices else ""
        return cls(
            namespace=ref.namespace,
            name=ref.name,
            kind=ref.kind,
            state=state,
            queue=view.queue,
            cluster_queue=store.quotas.cluster_queue_of((ref.namespace, view.queue)),
            priority=view.priority,
            cluster=shown_cluster(view),
            wanted=view.desired.counts if view.job is not None else {},
            granted=view.holder.granted if view.holder is not None else {},
            ready=None if state is ShownState.UNKNOWN else ready_pods(view),
            created=view.job["metadata"].get("creationTimestamp", "") if view.job is not None else oldest,
            reason=reason,
            message=message,
        )


COLUMNS = (
    Column[JobRow]("NAME", lambda row: row.name),
    Column[JobRow]("KIND", lambda row: row.kind),
    Column[JobRow]("STATE", lambda row: row.state),
    Column[JobRow]("QUEUE", lambda row: row.queue or "-"),
    Column[JobRow]("CLUSTERQUEUE", lambda row: row.cluster_queue or "-", is_wide=True),
    Column[JobRow]("PRIORITY", lambda row: "-" if row.priority is None else str(row.priority), is_wide=True),
    Column[JobRow]("CLUSTER", lambda row: row.cluster or "-"),
    Column[JobRow]("WANTED", lambda row: str(sum(row.wanted.values()))),
    Column[JobRow]("GRANTED", lambda row: str(sum(row.granted.values()))),
    Column[JobRow](
        "READY", lambda row: "?" if row.ready is None or row.state is ShownState.UNKNOWN else str(row.ready)
    ),
    Column[JobRow]("PODS", lambda row: counts_text(row.wanted), is_wide=True),
    Column[JobRow]("AGE", lambda row: age_of(row.created)),
    Column[JobRow]("WHY", lambda row: row.why),
)
NAMESPACE = Column[JobRow]("NAMESPACE", lambda row: row.namespace)


def shown_refs(store: ManagerStore) -> Iterator[JobRef]:
    """Every job that slicebus runs, has left something of, or leaves alone although its user seems to expect it."""
    refs = dict.fromkeys(store.refs())
    for cache in store.jobs.values():
        refs |= {job_ref(job): None for job in cache.all() if is_nearly_managed(job) or is_reported_unmanaged(job)}
    return (ref for ref in refs if store.view(ref).job is not None or store.view(ref).unfinished)


def in_order(rows: Iterable[JobRow]) -> list[JobRow]:
    """Rows as kubectl sorts objects."""
    return sorted(rows, key=lambda row: (row.namespace, row.name, row.kind))
