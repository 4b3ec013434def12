"""Explains the size of a job: what it wants, what it waits for, and what happened to its slices."""

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from slicebus.manager.decide.admission.budgets_left import BudgetLeft, budgets_left
from slicebus.manager.decide.admission.queue_status import fair_sharing_of
from slicebus.manager.decide.job import attempts
from slicebus.manager.decide.job.displaced import displaced
from slicebus.manager.decide.job.shown_state import shown_cluster, shown_state
from slicebus.manager.decide.problems import ALL, Sight, is_reached, problems
from slicebus.manager.state.owners import job_of
from slicebus.manager.state.shown_states import ShownState
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, JobRef, Manifest, counts_text
from slicebus.slices.admission.cycle import Decision, Evict, Wait, cycle, in_order
from slicebus.slices.admission.preemption import preempted_for, preemptor_job, preemptor_uid
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.admission.snapshot import in_turn
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import Condition
from slicebus.slices.api.quantities import format_amount
from slicebus.slices.quota.cohorts import grow, queue_node
from slicebus.slices.workload.waiting import Waiting
from slicebus.slices.workload.workload import Slice, chain_id


class WaitingSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A slice that waits for quota."""

    slice: str
    size: Counts
    since: str
    """RFC 3339."""
    reason: str
    message: str
    would_admit: str
    """What would admit it, in words; empty where that is unknown."""
    position: int
    """Its place among the waiting slices of its ClusterQueue, from 1; 0 where it has none."""
    of: int
    ahead: tuple[str, ...]
    """The first few of those before it, as `namespace/name`."""
    victims: tuple[str, ...] = ()
    """The slices that are preempted for it, or would be now, as `namespace/name`."""


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Quota of the job's ClusterQueue, as Kubernetes quantities."""

    flavor: str
    resource: str
    nominal: str
    used: str
    by_this_job: str
    available: str
    """How much more the queue could use, borrowing included."""


class SliceHistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The history of one slice."""

    slice: str
    size: Counts
    replaces: str
    steps: tuple[tuple[str, str], ...]
    """The time (RFC 3339) and the text of each step."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one job."""

    job: str
    """`Kind/namespace/name`."""
    state: ShownState
    local_queue: str
    cluster_queue: str
    cohort: str
    fair_sharing: str
    """`off`, or the strategies by which queues borrow and are preempted."""
    cluster: str
    priority: int | None
    """That of its newest slice; None where it has none yet."""
    wanted: Counts
    wanted_by: str
    granted: Counts
    problems: tuple[str, ...]
    """What is wrong, one sentence each."""
    waiting: tuple[WaitingSlice, ...]
    displaced: tuple[str, ...]
    """The jobs that lack quota since this one has taken it, each with what it has lost."""
    quota: tuple[Amount, ...]
    budgets: tuple[BudgetLeft, ...]
    """Those that it spends of."""
    history: tuple[SliceHistoryEntry, ...]


_AHEAD_SHOWN = 3
_STEPS: dict[tuple[str, str], str] = {
    (Condition.QUOTA_RESERVED, "False"): "waits: {reason}",
    (Condition.QUOTA_RESERVED, "True"): "quota reserved",
    (Condition.EVICTED, "True"): "evicted: {why}",
    (Condition.REQUEUED, "True"): "requeued: {reason}",
    (Condition.ADMITTED, "True"): "admitted",
    (Condition.PODS_READY, "True"): "all pods ready",
    (Condition.PODS_READY, "False"): "pods not ready",
    (Condition.PREEMPTED, "True"): "preempted: {reason}",
    (Condition.FINISHED, "True"): "finished: {reason}",
}
"""The text of a step by the type and status of its condition."""


def explain(store: ManagerStore, ref: JobRef, sight: Sight = ALL, *, moment: datetime | None = None) -> Explanation:
    """Explain a job that exists, as far as `sight` reaches: without the quota, by what its slices say. What is left of
    budgets is said with a `moment` only, and without one a slice waits for a budget where the last cycle said so."""
    view = store.view(ref)
    assert view.job is not None
    desired, queue = view.desired, view.queue
    cluster_queue = store.quotas.cluster_queue_of((ref.namespace, queue))
    queue_spec = store.quotas.cluster_queues.get(cluster_queue)
    fair_sharing = fair_sharing_of(store.cluster_queues.get(None, cluster_queue) or {})
    asked = f"asked for by its worker, generation {desired.requested.worker_generation}" if desired.requested else ""
    ended = f", where {counts_text(desired.finished)} ended" if desired.finished else ""
    return Explanation(
        job=ref.key,
        state=shown_state(view, is_reached=is_reached(store, view, sight)),
        local_queue=queue,
        cluster_queue=cluster_queue,
        cohort=queue_spec.cohort if queue_spec else "",
        fair_sharing=fair_sharing,
        cluster=shown_cluster(view),
        priority=view.priority,
        wanted=desired.counts,
        wanted_by=asked + ended if desired.correlation else "its spec",
        granted=view.holder.granted if view.holder else {},
        problems=tuple(dict.fromkeys(problems(store, view, sight))),
        waiting=tuple(
            _waiting(store, view, cluster_queue, fair_sharing, moment)
            if sight.quota
            else _waiting_as_said(view, view.job)
        ),
        displaced=tuple(displaced(store, ref)),
        quota=tuple(_quota(store, view, cluster_queue)) if sight.quota else (),
        budgets=budgets_left(store.quotas, (ref.namespace, queue), moment) if moment is not None else (),
        history=tuple(_entry(store, view.workload(slice), slice) for slice in view.slices),
    )


def _waiting(
    store: ManagerStore, view: JobView, cluster_queue: str, fair_sharing: FairSharing, moment: datetime | None
) -> Iterator[WaitingSlice]:
    tree = store.quotas.trees.get(queue_node(cluster_queue))
    snapshot = store.quotas.snapshot(
        [tree] if tree else None, {}, fair_sharing=fair_sharing, moment=moment, usage_rule=store.settings.usage_rule
    )
    decided = cycle(snapshot)
    decisions = {decision.key: decision for decision in decided}
    queue = in_turn(snapshot, cluster_queue, order_of(store, cluster_queue))
    said = {each.slice: each for each in _waiting_as_said(view, view.job)} if moment is None and view.job else {}
    for slice in view.slices:
        if not slice.pending:
            continue
        decision, last = decisions.get(slice.key), said.get(slice.name)
        waits: Wait | WaitingSlice | None = decision if isinstance(decision, Wait) else None
        if last is not None and last.reason == api_names.BUDGET_SPENT:
            waits = last
        ahead = queue[: queue.index(slice)] if slice in queue else []
        yield WaitingSlice(
            slice=slice.name,
            size=slice.counts,
            since=slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("lastTransitionTime", slice.created),
            reason=waits.reason if waits is not None else "",
            message=waits.message if waits is not None else "it fits, and is about to be admitted",
            would_admit=waits.would_admit if waits is not None else "",
            position=len(ahead) + 1 if slice in queue else 0,
            of=len(queue),
            ahead=tuple(other.key for other in ahead[:_AHEAD_SHOWN]),
            victims=tuple(sorted(_victims(slice, snapshot.part.leaving, decided))),
        )


def order_of(store: ManagerStore, cluster_queue: str) -> list[Slice]:
    """The slices that wait in a ClusterQueue, in their order."""
    own = (
        slice for slice in store.slices.values() if store.quotas.cluster_queue_of(slice.local_queue) == cluster_queue
    )
    return in_order(own)


def _waiting_as_said(view: JobView, job: Manifest) -> Iterator[WaitingSlice]:
    """What the last admission cycle has said of the slices that wait."""
    shown = Waiting.from_manifest(job)
    for slice in view.slices:
        if slice.pending:
            condition = slice.conditions.get(Condition.QUOTA_RESERVED, {})
            yield WaitingSlice(
                slice=slice.name,
                size=slice.counts,
                since=condition.get("lastTransitionTime", slice.created),
                reason=condition.get("reason", ""),
                message=condition.get("message", "no admission cycle has considered it yet"),
                would_admit=shown.would_admit if shown is not None else "",
                position=0,
                of=0,
                ahead=(),
            )


def _victims(slice: Slice, leaving: Iterable[Slice], decided: Iterable[Decision]) -> set[str]:
    going = {other.key for other in leaving if other.evicting and preempted_for(other) == slice.uid}
    evictions = (decision for decision in decided if isinstance(decision, Evict))
    return {*going, *(evict.key for evict in evictions if preemptor_uid(evict.message) == slice.uid)}


def _quota(store: ManagerStore, view: JobView, cluster_queue: str) -> Iterator[Amount]:
    """The queue's quota of the resources that the job needs."""
    quotas = store.quotas
    queue, holdings = quotas.cluster_queues.get(cluster_queue), quotas.ledger.holdings
    if queue is None:
        return
    forest = grow(quotas.cluster_queues.values(), quotas.cohorts, holdings.totals)
    own = holdings.used_by(chain_id(view.ref.namespace, view.ref.uid)).get(cluster_queue, {})
    needed = {resource for slice in view.slices for pod_set in slice.pod_sets for resource in pod_set.charged}
    node = forest.queues[cluster_queue]
    for key, nominal in queue.nominal.items():
        flavor, resource = key
        if resource in needed:
            yield Amount(
                flavor=flavor,
                resource=resource,
                nominal=format_amount(resource, nominal),
                used=format_amount(resource, node.used(key)),
                by_this_job=format_amount(resource, own.get(key, 0)),
                available=format_amount(resource, max(0, node.available(key))),
            )


def _entry(store: ManagerStore, workload: Manifest, slice: Slice) -> SliceHistoryEntry:
    steps = [(slice.created, "created")]
    evicted: set[str] = set()
    for attempt in attempts.earlier(workload):
        ended, why = attempt.evicted
        evicted.add(ended)
        steps += [attempt.admitted, (ended, f"evicted: {_with_preemptor(store, why)}")]
    for type, condition in slice.conditions.items():
        text = _STEPS.get((type, condition["status"]))
        if text and not (type == Condition.EVICTED and condition["lastTransitionTime"] in evicted):
            why = _with_preemptor(store, attempts.reason_of(condition)) if type == Condition.EVICTED else ""
            shown = text.format(reason=condition.get("reason", ""), why=why)
            steps.append((condition["lastTransitionTime"], shown))
    return SliceHistoryEntry(
        slice=slice.name,
        size=slice.counts,
        replaces=(slice.replaces or "").partition("/")[2],
        steps=tuple(sorted(steps, key=lambda step: step[0])),
    )


def _with_preemptor(store: ManagerStore, why: str) -> str:
    """Why a slice was evicted, with the name of the job that has taken its quota, as long as the reader can see it."""
    if not (job := preemptor_job(why)):
        return why
    preemptor = next((slice for slice in store.slices.values() if slice.job_uid == job), None)
    ref = job_of(store, preemptor.key) if preemptor is not None else None
    return f"for {ref.key}: {why}" if ref is not None else why
