"""The queues, and one of them: its quota, who waits in which order, who borrows, and who preempted whom."""

from collections.abc import Iterable, Iterator

import msgspec

from slicebus.cli.cluster.filters import unknown
from slicebus.cli.queues.rows import QueueRow, QueueUse, in_order
from slicebus.cli.view.fleet_state import FleetState
from slicebus.cli.view.pages.paging import PageOf, page_of
from slicebus.kube.resources import CLUSTERQUEUES
from slicebus.manager.decide.explain import order_of
from slicebus.manager.state.owners import job_of
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ForbiddenError, NotFoundError
from slicebus.proto.messages import Counts, JobRef
from slicebus.slices.admission.preemption import preemptor_uid
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.workload import Slice


class QueuesPage(msgspec.Struct, frozen=True, kw_only=True):
    """All queues that the user may see."""

    cluster_queues: tuple[QueueRow, ...]
    local_queues: tuple[QueueRow, ...]
    is_hidden: bool
    """Whether the user may not see ClusterQueues."""


class WaitingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A slice that waits in a queue."""

    position: int
    """From 1."""
    slice: str
    """`namespace/name`."""
    job: JobRef | None
    size: Counts
    priority: int
    since: str
    """RFC 3339."""
    message: str


class Borrower(msgspec.Struct, frozen=True):
    """A queue of the cohort that uses more than its own quota."""

    queue: str
    use: QueueUse


class PreemptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A slice that was preempted, and for whom."""

    at: str
    """RFC 3339."""
    victim: str
    victim_job: JobRef | None
    preemptor: str
    """`namespace/name`; empty where it is gone."""
    preemptor_job: JobRef | None
    message: str


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """One ClusterQueue."""

    queue: QueueRow
    local_queues: tuple[QueueRow, ...]
    waiting: PageOf[WaitingRow]
    order_is_known: bool
    """Whether the user sees all that waits, so that the order is the whole one."""
    cohort: tuple[QueueRow, ...]
    """The other queues of its cohort."""
    borrowers: tuple[Borrower, ...]
    preemptions: tuple[PreemptionRow, ...]
    """The newest first."""


def cluster_queue_rows(store: ManagerStore) -> list[QueueRow]:
    """Every ClusterQueue."""
    return in_order(map(QueueRow.of, store.cluster_queues.all()))


def queues_page(state: FleetState) -> QueuesPage:
    """The page of all queues."""
    store = state.reading.store
    return QueuesPage(
        cluster_queues=tuple(cluster_queue_rows(store)),
        local_queues=tuple(in_order(map(QueueRow.of, store.local_queues.all()))),
        is_hidden=CLUSTERQUEUES in state.reading.hidden,
    )


def queue_page(state: FleetState, name: str, page: int) -> QueuePage:
    """The page of a ClusterQueue. Raises NotFoundError with the nearest name, and ForbiddenError."""
    store = state.reading.store
    rows = {row.name: row for row in cluster_queue_rows(store)}
    queue = rows.get(name)
    if queue is None and CLUSTERQUEUES in state.reading.hidden:
        raise ForbiddenError("you may not see ClusterQueues")
    if queue is None:
        raise NotFoundError(unknown(name, "ClusterQueue", rows) if rows else f"there is no ClusterQueue {name}")
    others = [row for row in rows.values() if queue.cohort and row.cohort == queue.cohort and row is not queue]
    waiting = [_waiting(store, position, slice) for position, slice in enumerate(order_of(store, name), start=1)]
    locals_ = (row for row in map(QueueRow.of, store.local_queues.all()) if row.cluster_queue == name)
    return QueuePage(
        queue=queue,
        local_queues=tuple(in_order(locals_)),
        waiting=page_of(waiting, page),
        order_is_known=state.reading.sight.quota,
        cohort=tuple(others),
        borrowers=tuple(_borrowers([queue, *others])),
        preemptions=tuple(sorted(_preemptions(store, name), key=lambda row: row.at, reverse=True)),
    )


def _waiting(store: ManagerStore, position: int, slice: Slice) -> WaitingRow:
    condition = slice.conditions.get(Condition.QUOTA_RESERVED, {})
    return WaitingRow(
        position=position,
        slice=slice.key,
        job=job_of(store, slice.key),
        size=slice.counts,
        priority=slice.priority,
        since=condition.get("lastTransitionTime") or slice.created,
        message=condition.get("message", "no admission cycle has considered it yet"),
    )


def _borrowers(rows: Iterable[QueueRow]) -> Iterator[Borrower]:
    for row in rows:
        yield from (Borrower(row.name, use) for use in row.use if use.borrowed not in ("", "0"))


def _preemptions(store: ManagerStore, queue: str) -> Iterator[PreemptionRow]:
    """Those whose victim or preemptor is in the queue. A Workload keeps its last one, also when it has quota again."""
    by_uid = {slice.uid: slice for slice in store.slices.values()}
    for slice in store.slices.values():
        condition = slice.conditions.get(Condition.PREEMPTED, {})
        if not (uid := preemptor_uid(condition.get("message", ""))):
            continue
        preemptor = by_uid.get(uid)
        queues = {store.quotas.cluster_queue_of(one.local_queue) for one in (slice, preemptor) if one is not None}
        if queue in queues:
            yield PreemptionRow(
                at=condition.get("lastTransitionTime", ""),
                victim=slice.key,
                victim_job=job_of(store, slice.key),
                preemptor=preemptor.key if preemptor is not None else "",
                preemptor_job=job_of(store, preemptor.key) if preemptor is not None else None,
                message=condition.get("message", ""),
            )
