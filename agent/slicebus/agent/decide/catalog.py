"""Every recorded decision of the agent: functions of the store and of what the shell passes.

The shell calls each through a `Decider`, which records it, and `slicebus replay` makes it again.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from slicebus.agent.decide import orders, reconcile
from slicebus.agent.decide.orders import KindNotServed, NextStep
from slicebus.agent.state import annotations
from slicebus.agent.state.store import Store
from slicebus.agent.state.views import JobKey, JobReading, WorkerView
from slicebus.decisions.commands import Command, Publish
from slicebus.decisions.decider import Incoming
from slicebus.decisions.replay import Model
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.errors import ConflictError, DeadReason, ProtocolError
from slicebus.proto.messages import (
    ClusterName,
    ClusterUid,
    Delete,
    Manifest,
    Message,
    Resync,
    Status,
    Suspend,
    Terms,
    WorkloadSpec,
    job_of,
    version_of,
)

# --- messages from the manager --------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """What the agent does with a valid message."""

    TAKEN = "taken"
    """Carry it out."""
    ENDED = "ended"
    """A newer order has ended its job here. Report the end again once the job is gone."""
    UNKNOWN = "unknown"
    """It suspends a job that never was here: end the job, so that no older order creates it."""
    NOT_SERVED = "not_served"
    """No package brings its job kind: answer it without carrying it out."""


def judge(
    store: Store,
    *,
    incoming: Incoming,
    cluster: ClusterName,
    manager_user: str | None,
    cluster_uid: ClusterUid | None,
) -> Verdict:
    """What to do with a message. Raises ProtocolError for one that this agent may not carry out."""
    envelope, message = incoming.envelope, incoming.message
    if envelope.cluster != cluster:
        raise ProtocolError(DeadReason.UNKNOWN_CLUSTER, f"for cluster {envelope.cluster!r}, this is {cluster!r}")
    if cluster_uid and envelope.cluster_uid not in (None, cluster_uid):
        detail = f"for the cluster {envelope.cluster_uid} of the name {cluster!r}, this is {cluster_uid}"
        raise ProtocolError(DeadReason.WRONG_CLUSTER, detail)
    if manager_user is not None and envelope.user_id != manager_user:
        detail = f"user {envelope.user_id!r} gives no orders here, only {manager_user!r} does"
        raise ProtocolError(DeadReason.WRONG_USER, detail)
    job = job_of(message)
    if not isinstance(message, (Resync, Terms)) and job is None:
        raise ProtocolError(DeadReason.UNKNOWN_TYPE, f"{message.type} is not for an agent")
    if job is not None and job.kind not in JOB_RESOURCES:
        return Verdict.NOT_SERVED
    if not isinstance(message, Delete) and _has_ended(store, message):
        return Verdict.ENDED
    return Verdict.UNKNOWN if isinstance(message, Suspend) and _is_unknown(store, message) else Verdict.TAKEN


def proceed(store: Store, *, incoming: Incoming, number: int, cluster: ClusterName) -> NextStep:
    """The next step of an order, from step `number` on. Raises ConflictError and RefusedOrder.

    An order does not create a job again that somebody has deleted here: it was sent before the manager knew.
    """
    view = store.view(_key_of(incoming))
    if _has_deleted(store, view, incoming):
        return NextStep(None, [])
    return orders.next_step(orders.steps(incoming.message, cluster), number, view)


def answer_unserved(store: Store, *, incoming: Incoming, cluster: ClusterName) -> list[Command]:
    """The answer to an order for a job kind that no package brings. Raises ProtocolError for an order to end a job that
    an agent with the package has left here."""
    order = incoming.message
    match order:
        case WorkloadSpec(job=job):
            return orders.refusal(order, KindNotServed(job.kind, "its agent has no package for this job kind"), cluster)
        case Suspend(job=job, spec_version=version) | Delete(job=job, spec_version=version):
            if store.holds(job):
                detail = f"no package brings the job kind {job.kind!r}, and objects of {job.key} are here"
                raise ProtocolError(DeadReason.REFUSED, detail)
            return [orders.report_deleted(job, version, cluster)]
    return []


# --- a job is reconciled --------------------------------------------------------------------------------------------


class Stage(StrEnum):
    """The stages of reconciling a job, in this order."""

    REMOVE_TOMBSTONED = "remove_tombstoned"
    REPORT_DELETED = "report_deleted"
    TAKE_OFF_TTL = "take_off_ttl"
    LINK_COPIES = "link_copies"
    CONFIRM_SUSPENDED = "confirm_suspended"
    REQUEST = "request"
    UNGATE = "ungate"
    REPORT = "report"


class NextStage(NamedTuple):
    """The next stage of a job, and its commands."""

    stage: Stage
    commands: Sequence[Command]


def reconcile_job(
    store: Store, *, key: JobKey, cluster: ClusterName, fenced: bool, now_s: float, interval_s: float
) -> NextStage | None:
    """The first stage that has commands; None when none has. Carry it out before asking for the next.

    `fenced`: the fence is closed, so no pod may start. Times are those of the agent's loop, in seconds.
    """
    view = store.view(key)

    def stages() -> Iterator[tuple[Stage, Sequence[Command]]]:
        yield Stage.REMOVE_TOMBSTONED, _removes_tombstoned(store, key, view)
        if view.reading is not None:
            # Reports on earlier jobs of the name: the pods of a job go after it.
            yield Stage.REPORT_DELETED, _deletion_reports(store, key, cluster, present=view.reading)
        yield Stage.TAKE_OFF_TTL, reconcile.take_off_ttl(view)
        yield Stage.LINK_COPIES, reconcile.link_copies(view)
        yield (
            Stage.CONFIRM_SUSPENDED,
            reconcile.confirm_suspended(view, cluster, reported=store.confirmed_suspended.get(key)),
        )
        yield Stage.REQUEST, reconcile.request(view, cluster)
        if not fenced:
            yield Stage.UNGATE, reconcile.ungate(view)
        last = store.reported.get(key)
        yield Stage.REPORT, reconcile.report(view, cluster, last=last, now_s=now_s, interval_s=interval_s)

    for stage, commands in stages():
        if commands:
            return NextStage(stage, commands)
    return None


def reconcile_absent(store: Store, *, key: JobKey, found: Manifest | None, cluster: ClusterName) -> list[Command]:
    """The reports on a job that is missing: deleted by order, or gone otherwise. None before its last pod has ended:
    with the report the manager frees their quota.

    `found` is what the API server has under the name: an empty cache is no evidence. Raises ConflictError where that is
    the job after all. A job of a kind that is not served is not reported; copies are unlinked from a job that went with
    its definition.
    """
    view = store.view(key)
    if view.is_hidden:
        return []
    there = found or view.job
    if there is not None and (annotations.is_ours(there) or there["metadata"]["uid"] in reconcile.linked_uids(view)):
        raise ConflictError(f"{key} is there, the watch has not brought it yet")
    commands = _deletion_reports(store, key, cluster, present=None)
    if (gone := _gone(store, view)) and gone.job.uid not in view.running:
        commands.append(Publish(cluster=cluster, message=gone))
    return commands if gone else commands + reconcile.unlink_copies(view)


def take_over_pods(store: Store, *, epoch: int) -> list[Command]:
    """One write to each pod that an earlier agent may be about to ungate; none when all are written."""
    return [command for key in store.our_jobs() for command in reconcile.take_over_pods(store.view(key), epoch=epoch)]


DECISIONS: tuple[Callable[..., Any], ...] = (
    judge,
    proceed,
    answer_unserved,
    reconcile_job,
    reconcile_absent,
    take_over_pods,
)
MODEL = Model(state=Store, decisions={decision.__name__: decision for decision in DECISIONS})
"""The agent, for replay."""


def _key_of(order: Incoming) -> JobKey:
    job = job_of(order.message)
    assert job is not None
    return JobKey.of(job)


def _has_ended(store: Store, message: Message) -> bool:
    """Whether the job has a tombstone that is newer than the message."""
    job, version = job_of(message), version_of(message)
    tombstone = store.tombstones.get(job.uid) if job is not None else None
    return tombstone is not None and version is not None and tombstone.version >= version


def _is_unknown(store: Store, suspend: Suspend) -> bool:
    """Whether the job to suspend never was here."""
    view = store.view(JobKey.of(suspend.job))
    present = view.reading is not None and view.reading.is_of(suspend.job)
    gone = reconcile.gone(view, departed=store.departed)
    return not (present or view.is_hidden) and (gone is None or gone.job.uid != suspend.job.uid)


def _has_deleted(store: Store, view: WorkerView, order: Incoming) -> bool:
    """Whether the order would create a job that has gone from here without an order."""
    if view.job is not None or not isinstance(order.message, WorkloadSpec):
        return False
    gone = _gone(store, view)
    return gone is not None and gone.job.uid == order.message.job.uid


def _gone(store: Store, view: WorkerView) -> Status | None:
    """The report on a job that has gone without an order of the manager."""
    gone = reconcile.gone(view, departed=store.departed)
    tombstone = store.tombstones.get(gone.job.uid) if gone else None
    return gone if gone is not None and (tombstone is None or tombstone.version < gone.spec_version) else None


def _removes_tombstoned(store: Store, key: JobKey, view: WorkerView) -> list[Command]:
    """Removes the objects of jobs with a tombstone: an agent that stood still may have created them late."""
    return [
        command
        for tombstone in store.ended(key)
        for command in orders.removes(view, tombstone.job, up_to=tombstone.version)
        if "deletionTimestamp" not in command.target["metadata"]
    ]


def _deletion_reports(store: Store, key: JobKey, cluster: ClusterName, *, present: JobReading | None) -> list[Command]:
    """The reports on ended jobs of the name that are gone. `present` is the job that has the name now."""
    return [
        orders.report_deleted(tombstone.job, tombstone.version, cluster)
        for tombstone in store.ended(key)
        if tombstone.job.uid in store.unreported
        and tombstone.job.uid not in store.view(key).running
        and not (present is not None and present.is_of(tombstone.job))
    ]
