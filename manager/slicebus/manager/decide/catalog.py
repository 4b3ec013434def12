"""The decisions of the manager: each is a function of the store and of what the shell passes in. `DECISIONS` lists
them.

Nothing else decides. Each decision is made through a `Decider`, which records it, and `slicebus replay` makes it again.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from slicebus.decisions.commands import Command, Patch
from slicebus.decisions.replay import Model
from slicebus.kube.cache import key_of
from slicebus.kube.resources import RESOURCEFLAVORS
from slicebus.manager.decide.admission import admission_writes, honoring, queue_status, sharding
from slicebus.manager.decide.admission.snapshots import Since, snapshot_of
from slicebus.manager.decide.cluster import moves, relocation, strays, worker_cluster_status
from slicebus.manager.decide.cluster.strays import Whereabouts
from slicebus.manager.decide.forecast import dry_runs
from slicebus.manager.decide.job import endings, set_aside
from slicebus.manager.decide.job.endings import Ending
from slicebus.manager.decide.job.slice_history import SliceHistory, surplus
from slicebus.manager.decide.job.slice_history import collect as collected
from slicebus.manager.decide.kueue import kueue_checks
from slicebus.manager.decide.manifests import one_write_each
from slicebus.manager.decide.messages import inventory, message_router
from slicebus.manager.decide.messages.inventory import Difference, Stamp
from slicebus.manager.decide.modes import mode_of
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.store import ManagerStore, owner_ref
from slicebus.manager.state.views import JobView
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.codec import decode_report
from slicebus.proto.messages import (
    ClusterName,
    InventoryItem,
    JobRef,
    RequestKey,
)
from slicebus.slices.admission import cycle as admission
from slicebus.slices.admission.cycle import Decision, Evict
from slicebus.slices.api.conditions import Finding
from slicebus.slices.workload.workload import SliceKey


def reconcile_job(store: ManagerStore, *, job: JobRef, deletes_held: bool, now: str) -> list[Command]:
    """The commands for everything that a job needs. `deletes_held`: whether the breaker holds its delete.

    While a kind is not served nobody knows which of its jobs exist, so they are left as they are, and missing ones show
    that. Only a delete that has begun goes on: the definition may be waiting for it.
    """
    view = store.view(job, deletes_held=deletes_held)
    commands = _reconcile(store, view, now)
    return [*commands, *(set_aside.clear(view.job) if view.job is not None else [])]


def _reconcile(store: ManagerStore, view: JobView, now: str) -> list[Command]:
    job, mode = view.ref, mode_of(store)
    ending_now = _ending_of(store, view)
    if job.kind in store.unserved:
        if ending_now is Ending.NOT_SERVED:
            return endings.show_held(view, ending_now, unserved=store.unserved[job.kind], now=now)
        return mode.go_on_ending(view)
    if commands := [*endings.record_owner(view), *endings.show_held(view, ending_now, now=now)]:
        return commands
    shown = mode.show_unmanaged(view, view.job, now=now) if view.job is not None else []
    if shown and not view.is_taken:
        return shown
    commands = mode.reconcile(store, view, now)
    # Whatever is shown, a job that was taken goes on. Of two writes of one object the second would be a conflict.
    writes_job = any(isinstance(command, Patch) and command.target is view.job for command in commands)
    return [*commands, *([] if writes_job else shown)]


def show_set_aside(store: ManagerStore, *, job: JobRef, problem: str, now: str) -> list[Command]:
    """Show on a job that nothing is done for it, as the decision about it raises."""
    manifest = store.view(job).job
    return set_aside.show(manifest, problem, now=now) if manifest is not None else []


def ending(store: ManagerStore, *, job: JobRef) -> Ending:
    """Why a job is to be deleted on its worker, by whether a watch saw its delete, and by its namespace."""
    return _ending_of(store, store.view(job))


def compare(store: ManagerStore, *, job: JobRef, item: InventoryItem | None, waits: bool = False) -> Difference:
    """How a worker's inventory differs from what it shall hold of one job. `waits`: it lists a request of the job."""
    return inventory.difference(store.view(job), item, queues=store.quotas.cluster_queues, waits=waits)


def status_differs(store: ManagerStore, *, job: JobRef, item: InventoryItem) -> bool:
    """Whether the worker's agent has to be asked for a status that it takes as reported."""
    return inventory.status_differs(store.view(job), item, queues=store.quotas.cluster_queues)


def lacks_request(store: ManagerStore, *, job: JobRef, request: RequestKey, speaker: str, published_at: Stamp) -> bool:
    """Whether a worker waits for the answer to a request that the manager does not know."""
    return inventory.lacks_request(store.view(job), request, speaker=speaker, published_at=published_at)


def is_stray(store: ManagerStore, *, job: JobRef, cluster: ClusterName, reported_since: bool) -> bool:
    """Whether a job that a worker lists should not be there."""
    return strays.is_stray(store.view(job), cluster, reported_since=reported_since)


def whereabouts(store: ManagerStore, *, job: JobRef, cluster: ClusterName) -> Whereabouts:
    """Where the manager runs a job that a cluster should not have, by its caches."""
    return strays.whereabouts(store.view(job), cluster)


def delete_stray(
    store: ManagerStore, *, job: JobRef, cluster: ClusterName, version: int, stored_uid: str | None
) -> list[Command]:
    """The delete of a job where it should not be; `stored_uid` is what the API server has under its name."""
    return strays.delete(store.view(job), cluster, version=version, stored_uid=stored_uid)


def publish_again(
    store: ManagerStore, *, job: JobRef, item: InventoryItem | None, speaker: str, published_at: Stamp
) -> list[Command]:
    """Publish again what the worker has not reported, although it was published, by its inventory of `published_at`."""
    view = store.view(job)
    forgotten = inventory.forget_lost_requests(view, item, speaker=speaker, published_at=published_at)
    return [*forgotten, *dispatch.publish_again(view)]


def forget_withdrawn(store: ManagerStore, *, job: JobRef, speaker: str, published_at: Stamp) -> list[Command]:
    """Forget the requests of earlier agents of a worker that stands by none, by its inventory of `published_at`."""
    return inventory.forget_withdrawn(store.view(job), speaker=speaker, published_at=published_at)


def take_as_applied(store: ManagerStore, *, job: JobRef, version: int) -> list[Command]:
    """Write a version as applied that the worker's inventory shows, although no report of it has come."""
    return dispatch.take_as_applied(store.view(job), version=version)


def renew(
    store: ManagerStore, *, job: JobRef, item: InventoryItem | None, speaker: str, published_at: Stamp
) -> list[Command]:
    """Dispatch what the worker shall hold anew, above the version of its inventory, which came with `published_at`."""
    view = store.view(job)
    forgotten = inventory.forget_lost_requests(view, item, speaker=speaker, published_at=published_at)
    version, has_copy = item.spec_version if item else 0, not inventory.has_lost_copy(item)
    return one_write_each([*forgotten, *dispatch.renew(view, above=version, has_copy=has_copy)])


def lose(store: ManagerStore, *, cluster: ClusterName, silent_s: float, now: str) -> list[Command]:
    """Show a cluster as not connected after `silent_s` seconds of silence."""
    manifest = store.clusters.get(None, cluster)
    return worker_cluster_status.lost(manifest, silent_s=silent_s, now=now) if manifest is not None else []


def is_outage(store: ManagerStore, *, silent: Sequence[ClusterName]) -> bool:
    """Whether so many clusters are silent that the broker, or this side, is more likely away than all of them."""
    return relocation.is_outage(store.quotas.worker_clusters, silent)


def assess_silent(store: ManagerStore, *, cluster: ClusterName, silent_s: float, outage: bool) -> Finding | None:
    """Decide whether a silent cluster is given up, or why not. None before its time, and where none is given up."""
    manifest, requeue_s = store.clusters.get(None, cluster), store.settings.cluster_lost_requeue_s
    if manifest is None or requeue_s is None:
        return None
    reading = WorkerCluster.from_manifest(manifest)
    return relocation.assess(reading, silent_s=silent_s, requeue_s=requeue_s, outage=outage)


def show_standing(store: ManagerStore, *, cluster: ClusterName, finding: Finding, now: str) -> list[Command]:
    """Write onto a cluster whether it is given up, and why."""
    manifest = store.clusters.get(None, cluster)
    return relocation.show(manifest, finding, now=now) if manifest is not None else []


def is_back(store: ManagerStore, *, cluster: ClusterName) -> bool:
    """Whether a given-up cluster that speaks has no copy left of jobs that went elsewhere, or are about to."""
    return not store.jobs_left_on(cluster) and not store.has_leaving_jobs(cluster)


def move(store: ManagerStore) -> list[Evict]:
    """The evictions of the chains that leave their clusters now."""
    return moves.due(store)


def cycle(
    store: ManagerStore,
    *,
    trees: Sequence[str] | None,
    preemption_cycles_since: str,
    growth_since: str = "",
    idle_since: str = "",
    now: str = "",
    refused: Sequence[SliceKey] = (),
    unevictable: Sequence[SliceKey] = (),
) -> list[Decision]:
    """Run the admission cycle over some trees of quota; all for None. Decisions that are shown already are left out.

    `preemption_cycles_since` as in `PreemptionCycles`, `growth_since` as in `GrowthLimit`, `idle_since` as in
    `IdleGrowth`: without it no job grows into idle quota. `now` is the time to which budgets are counted: without it
    none is spent. The `refused` slices come last: the API server has refused their admission. It has refused to evict
    the `unevictable` ones, or to let them lose pods: they are no victims.
    """
    since = Since(preemption_cycles=preemption_cycles_since, growth=growth_since, idle=idle_since, now=now)
    out_of_turn = {"refused": frozenset(refused), "unevictable": frozenset(unevictable)}
    decided = admission.cycle(snapshot_of(store, trees, since, in_lines=True, **out_of_turn))
    unanswered = [admission_writes.retry(uncertain) for uncertain in store.uncertain.values()]
    decided = [*(decision for decision in decided if decision.key not in store.uncertain), *unanswered]
    return [decision for decision in decided if _is_unshown(store, decision)]


def apply_decision(store: ManagerStore, *, decision: Decision, version: str, in_turn: bool, now: str) -> list[Command]:
    """The writes of a decision about a slice that was made from this resourceVersion of its Workload.

    Raises ConflictError when the Workload has another version now: its counts may be others, so it is decided again.
    `in_turn`: nobody else decides about the job or writes for it meanwhile.
    """
    slice = store.slices.get(decision.key)
    workload = store.workloads.get(slice.namespace, slice.name) if slice else None
    ref = owner_ref(workload) if workload else None
    if slice is None or workload is None or ref is None:
        return []
    admission_writes.ensure_unchanged(workload, version)
    return mode_of(store).apply(store.view(ref), slice, decision, in_turn=in_turn, now=now)


def collect(store: ManagerStore, *, now: str) -> list[Command]:
    """Delete the finished slices of every job that its history no longer keeps."""
    history = SliceHistory(limit=store.settings.slice_history_limit, max_age_s=store.settings.slice_history_s)
    ledger, moment = store.quotas.ledger, datetime.fromisoformat(now)
    commands: list[Command] = []
    own = (slice for slice in store.slices.values() if store.shards.has_queue(slice.local_queue))
    for chain in dict.fromkeys(slice.chain_id for slice in own if slice.finished):
        for slice in surplus(ledger.chain(chain), history, moment)[:1]:
            workload = store.workloads.get(slice.namespace, slice.name)
            ref = owner_ref(workload) if workload else None
            commands += collected(store.view(ref), history, moment) if ref else []
    return commands


def report_queues(store: ManagerStore, *, now: str) -> list[Command]:
    """Write the status of queues and cohorts, where it has changed, and onto flavors what is not honored of them. The
    first shard writes the flavors."""
    flavors = store.flavors.all() if store.shards.own.index == 0 else ()
    told = honoring.of_objects(RESOURCEFLAVORS, list(flavors), now=now)
    return told + queue_status.statuses(
        store.quotas.cluster_queues,
        store.quotas.cohorts,
        [queue for queue in store.cluster_queues.all() if store.shards.has_cluster_queue(queue["metadata"]["name"])],
        [queue for queue in store.local_queues.all() if store.shards.has_queue(key_of(queue))],
        store.quotas.ledger,
        now=now,
        fair_sharing=store.settings.fair_sharing,
        cohort_objects=[
            cohort for cohort in store.cohorts.all() if store.shards.has_cohort(cohort["metadata"]["name"])
        ],
        budgets=store.quotas.budgets,
        usage_rule=store.settings.usage_rule,
    )


def show_verdict(store: ManagerStore, *, job: JobRef, now: str) -> list[Command]:
    """Write onto a job that is only asked about what the next cycle would decide."""
    return dry_runs.show(store, job=job, now=now)


def report_checks(store: ManagerStore, *, now: str) -> list[Command]:
    """Write the conditions of slicebus' AdmissionChecks, where they have changed."""
    return [
        command
        for check in store.admission_checks.all()
        for command in kueue_checks.report(check, store.quotas.worker_clusters, now=now)
    ]


DECISIONS: tuple[Callable[..., Any], ...] = (
    reconcile_job,
    show_set_aside,
    ending,
    message_router.receive,
    message_router.refuse_cluster,
    message_router.note_clock,
    message_router.note_refused,
    message_router.keep_end,
    compare,
    status_differs,
    lacks_request,
    is_stray,
    whereabouts,
    delete_stray,
    publish_again,
    forget_withdrawn,
    take_as_applied,
    renew,
    lose,
    is_outage,
    assess_silent,
    show_standing,
    is_back,
    move,
    cycle,
    apply_decision,
    collect,
    report_queues,
    report_checks,
    show_verdict,
    sharding.give_away,
    sharding.hold,
)
MODEL = Model(
    state=ManagerStore,
    decode=decode_report,
    decisions={decision.__name__: decision for decision in DECISIONS},
    hashed=frozenset({compare.__name__, status_differs.__name__}),
)
"""The manager, for a replay."""


def _ending_of(store: ManagerStore, view: JobView) -> Ending:
    job = view.ref
    was_seen, namespace = job.uid in store.deleted, store.namespaces.get(None, job.namespace)
    is_served = job.kind not in store.unserved
    return endings.ending_of(view, was_seen=was_seen, namespace=namespace, is_served=is_served)


def _is_unshown(store: ManagerStore, decision: Decision) -> bool:
    """Whether the slice does not yet show the decision on its Workload."""
    slice = store.slices.get(decision.key)
    workload = store.workloads.get(slice.namespace, slice.name) if slice else None
    return workload is not None and not admission_writes.is_shown(workload, decision)
