"""The recorded decisions of the agent: each is a function of the store and of what the shell passes in.

The shell calls each through a `Decider`, which records it, and `slicebus replay` makes it again.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from slicebus.agent.decide.cluster.reach import Unreached
from slicebus.agent.decide.job import (
    finishing,
    gangs,
    kept_jobs,
    orphans,
    reconcile,
    set_aside,
    suspension,
    waiting,
    withdrawals,
)
from slicebus.agent.decide.order import notices, orders, pods_that_go, triage
from slicebus.agent.decide.order.orders import NextStep
from slicebus.agent.decide.pods import pod_problems, terminating_pods
from slicebus.agent.state import annotations
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import JobKey, Tombstone, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Forget, Patch, PatchEach, Publish
from slicebus.decisions.decider import Incoming
from slicebus.decisions.replay import Model
from slicebus.proto.codec import decode_order
from slicebus.proto.errors import ConflictError
from slicebus.proto.messages import (
    ClusterName,
    JobMessage,
    JobOrder,
    JobPhase,
    Manifest,
    Order,
    Status,
    WorkloadSpec,
)

# --- orders of the manager ------------------------------------------------------------------------------------------


def proceed(store: AgentStore, *, incoming: Incoming[Order], number: int, now: str = "") -> NextStep:
    """The next step of an order, from step `number` on. Raises ConflictError and RefusedOrder. `now` is RFC 3339.

    An order does not create a job again that somebody has deleted here: the manager sent it before it knew.
    """
    order = incoming.message
    assert isinstance(order, JobMessage)
    view = store.view(JobKey.of(order.job))
    if _has_deleted(store, view, order):
        return NextStep(None, [])
    return orders.next_step(orders.steps(order, store.settings.cluster, now=now), number, view)


# --- a job is reconciled --------------------------------------------------------------------------------------------


class Continuation(StrEnum):
    """How reconciling a job goes on after its commands."""

    AGAIN = "again"
    """Make the same decision again: what the commands have changed may lead to more."""
    DONE = "done"
    FIND = "find"
    """No job of ours is in the cache: make the decision `reconcile_absent`, with what the API server has under the
    name."""


class Work(NamedTuple):
    """The first commands that one job needs, and how it goes on after them."""

    then: Continuation
    commands: Sequence[Command]


def reconcile_job(
    store: AgentStore,
    *,
    key: JobKey,
    fenced: bool,
    now_s: float,
    now: str,
    unreached: Unreached | None = None,
    shows: bool = True,
) -> Work:
    """The first commands that a job needs. The writes of one step count for the next.

    `fenced`: the fence is closed, so no pod may start. `unreached`: what keeps requests from being answered. `shows`:
    False leaves out the steps that show something, as the API server has just refused one. `now` is RFC 3339; the other
    times are those of the agent's loop, in seconds.
    """
    view, cluster = store.view(key), store.settings.cluster

    def steps() -> Iterator[tuple[Continuation, Sequence[Command]]]:
        yield Continuation.DONE, _removes_tombstoned(store, key, view)
        if view.reading is not None:
            # Earlier jobs of the name are reported on now: the pods of a job go after it.
            yield Continuation.AGAIN, _deletion_reports(store, key, cluster, present=view.reading)
        yield Continuation.AGAIN, reconcile.link_copies(view)
        yield (
            Continuation.DONE,
            kept_jobs.report(
                view, cluster, tombstone=_tombstone_of(store, view), last=store.reported.get(key), now_s=now_s
            ),
        )
        yield Continuation.AGAIN, notices.reconcile(view, now=now)
        yield Continuation.AGAIN, suspension.undo(view, now=now)
        confirmed = store.confirmed_suspended.get(key)
        yield Continuation.AGAIN, reconcile.confirm_suspended(view, cluster, reported=confirmed)
        yield Continuation.AGAIN, [*withdrawals.reconcile(view, now_s=now_s), *finishing.reconcile(view, now_s=now_s)]
        # Before the request is published, which waits for the broker.
        yield Continuation.AGAIN, waiting.show_unreached(view, unreached)
        yield Continuation.AGAIN, reconcile.request(view, cluster)
        overdue_s = store.settings.autoscaler_shrink_s
        yield Continuation.AGAIN, pods_that_go.cleared(view)
        yield Continuation.AGAIN, pods_that_go.overdue(view, now=now, after_s=overdue_s)
        yield Continuation.AGAIN, gangs.reconcile(view, now=now, now_s=now_s)
        yield Continuation.DONE, gangs.removes(view)
        if not fenced:
            yield Continuation.AGAIN, [*reconcile.ungate(view), *reconcile.ungate_cleanups(view)]
        yield Continuation.AGAIN, pod_problems.reconcile(view, now=now)
        yield Continuation.AGAIN, waiting.reconcile(view, now=now, unreached=unreached)
        last = store.reported.get(key)
        report = reconcile.report(view, cluster, last=last, now_s=now_s, interval_s=store.settings.status_interval_s)
        later = [
            waiting.requeue_after(view, now=now),
            pod_problems.requeue_after(view, now=now),
            terminating_pods.requeue_after(view, now=now),
            suspension.requeue_after(view, now=now),
            notices.requeue_after(view, now=now),
            gangs.requeue_after(view, now_s=now_s),
            withdrawals.requeue_after(view, now_s=now_s),
            finishing.requeue_after(view, now_s=now_s),
            pods_that_go.requeue_after(view, now=now, after_s=overdue_s),
        ]
        yield Continuation.DONE, [*report, *itertools.chain(*later)]

    for continuation, commands in steps():
        if commands and (shows or not _show(commands)):
            return Work(continuation, commands)
    if view.job is not None and annotations.is_ours(view.job):
        return Work(Continuation.DONE, set_aside.clear(view.job))
    known = {
        AgentTable.SURPLUS: key in store.surplus,
        AgentTable.NOTICED: key in store.noticed,
        AgentTable.NOTICED_BY: key in store.noticed_by,
        AgentTable.FINISHING: key in store.finishing,
        AgentTable.REFUSED_OBJECTS: key in store.refused_objects,
        AgentTable.REFUSED_WRITES: key in store.refused_writes,
        AgentTable.POD_PROBLEMS: key in store.pod_problems,
    }
    left = [Forget(table=name, key=key) for name, is_known in known.items() if is_known]
    forgotten = triage.forget_reports(store, key)
    if orphans.is_told(store.reported.get(key)):
        forgotten = [each for each in forgotten if each.table is not AgentTable.REPORTED]
    return Work(Continuation.FIND, [*forgotten, *left])


def _show(commands: Sequence[Command]) -> bool:
    return any(isinstance(command, Patch) and command.only_shows for command in commands)


class Cause(StrEnum):
    """Why a job is missing without an order."""

    ENDED = "ended"
    """It had ended."""
    DELETED = "deleted"
    """A watch has seen its delete."""
    UNKNOWN = "unknown"
    """It may have ended, or been deleted."""
    DEFINITION = "definition"
    """It went with the definition of its kind."""


class Absence(NamedTuple):
    """Why a job is missing, and the commands for that."""

    cause: Cause | None
    """None where the job was deleted by order, its pods still run, or nothing is known of it."""
    commands: Sequence[Command]


def reconcile_absent(store: AgentStore, *, key: JobKey, stored: Manifest | None, now: str = "") -> Absence:
    """The reports on a job that is missing: deleted by order, or gone otherwise. None before its last pod has ended:
    with the report the manager frees their quota. That pods run on whose job was deleted without them is told `now`.

    `stored` is what the API server has under the name: an empty cache is no evidence. Raises ConflictError where that
    is the job after all. A job of a kind that is not served is not reported; copies are unlinked from a job that went
    with its definition.
    """
    view, cluster = store.view(key), store.settings.cluster
    if view.is_hidden:
        return Absence(None, [])
    present = stored or view.job
    if present is not None and (
        annotations.is_ours(present) or present["metadata"]["uid"] in reconcile.linked_uids(view)
    ):
        raise ConflictError(f"{key} is there, the watch has not brought it yet")
    commands = _deletion_reports(store, key, cluster, present=None)
    gone = _gone(store, view)
    if gone is None:
        unlinks = reconcile.unlink_copies(view)
        return Absence(Cause.DEFINITION if unlinks else None, [*commands, *unlinks])
    if gone.job.uid in view.running:
        if not now or gone.phase is not JobPhase.GONE:
            return Absence(None, commands)
        owners = orphans.owners_left(view, lambda owner: store.view(owner).job)
        told = orphans.report(view, gone, cluster, owners=owners, last=store.reported.get(key), now=now)
        return Absence(None, [*commands, *told])
    # Without copies nothing else will say that it is told.
    forgotten = [] if view.copies else [Forget(table=AgentTable.DEPARTED, key=gone.job.uid)]
    if orphans.is_told(store.reported.get(key)):
        forgotten.append(Forget(table=AgentTable.REPORTED, key=key))
    return Absence(_cause_of(gone), [*commands, Publish(cluster=cluster, message=gone), *forgotten])


def note_refused(store: AgentStore, *, key: JobKey, problem: str, now: str) -> Sequence[Command]:
    """Remember that the API server refuses what a job needs, and say so on the job. `problem` has its words."""
    return waiting.note_refused(store.view(key), store.settings.cluster, problem, now=now)


def show_unreached(store: AgentStore, *, key: JobKey, unreached: Unreached) -> Sequence[Command]:
    """Show on a job that nobody answers its request."""
    return waiting.show_unreached(store.view(key), unreached)


def report(store: AgentStore, *, key: JobKey, now_s: float) -> Sequence[Command]:
    """Report the status of a job that cannot be reconciled now."""
    last, interval_s = store.reported.get(key), store.settings.status_interval_s
    return reconcile.report(store.view(key), store.settings.cluster, last=last, now_s=now_s, interval_s=interval_s)


def take_over_pods(store: AgentStore, *, epoch: int, job: JobKey | None = None) -> list[Command]:
    """Write once to each pod that an earlier agent may be about to ungate; nothing when all are written. `job`: only to
    those of this one."""
    jobs = map(store.view, store.our_jobs() if job is None else [job])
    patches = tuple(patch for view in jobs for patch in reconcile.take_over_pods(view, epoch=epoch))
    return [PatchEach(patches=patches)] if patches else []


def show_set_aside(store: AgentStore, *, key: JobKey, problem: str) -> list[Command]:
    """Show on a job of ours, once, that nothing is done for it, as the decision about it raises."""
    job = store.view(key).job
    return set_aside.show(job, problem) if job is not None and annotations.is_ours(job) else []


DECISIONS: tuple[Callable[..., Any], ...] = (
    triage.triage,
    triage.answer_unserved,
    proceed,
    reconcile_job,
    reconcile_absent,
    note_refused,
    show_unreached,
    report,
    take_over_pods,
    show_set_aside,
)
MODEL = Model(state=AgentStore, decode=decode_order, decisions={decision.__name__: decision for decision in DECISIONS})
"""The agent, for a replay."""


def _cause_of(gone: Status) -> Cause:
    if gone.phase is not JobPhase.GONE:
        return Cause.ENDED
    return Cause.DELETED if gone.seen else Cause.UNKNOWN


def _has_deleted(store: AgentStore, view: WorkerView, order: JobOrder) -> bool:
    """Whether the order would create a job that has gone from here without an order."""
    if view.job is not None or not isinstance(order, WorkloadSpec):
        return False
    gone = _gone(store, view)
    return gone is not None and gone.job.uid == order.job.uid


def _gone(store: AgentStore, view: WorkerView) -> Status | None:
    """The report on a job that has gone without an order of the manager."""
    gone = reconcile.gone_report(view, departed=store.departed)
    tombstone = store.tombstones.get(gone.job.uid) if gone else None
    return gone if gone is not None and (tombstone is None or tombstone.version < gone.spec_version) else None


def _tombstone_of(store: AgentStore, view: WorkerView) -> Tombstone | None:
    return store.tombstones.get(view.reading.ref.uid) if view.reading is not None else None


def _removes_tombstoned(store: AgentStore, key: JobKey, view: WorkerView) -> list[Command]:
    """Removes the objects of jobs with a tombstone: an agent that was stopped for a while may have created them
    late."""
    return [
        command
        for tombstone in store.ended(key)
        for command in orders.removes(view, tombstone.job, up_to=tombstone.version)
        if "deletionTimestamp" not in command.target["metadata"]
    ]


def _deletion_reports(
    store: AgentStore, key: JobKey, cluster: ClusterName, *, present: WorkerJobReading | None
) -> list[Command]:
    """The reports on ended jobs of the name that are gone, or stay for a finalizer only (`kept_jobs`). `present` is the
    job that has the name now."""
    return [
        command
        for tombstone in store.ended(key)
        if tombstone.job.uid in store.unreported
        and tombstone.job.uid not in store.view(key).running
        and not (present is not None and present.is_of(tombstone.job) and not kept_jobs.is_kept(present))
        for command in (
            orders.report_deleted(tombstone.job, tombstone.version, cluster),
            Forget(table=AgentTable.UNREPORTED, key=tombstone.job.uid),
        )
    ]
