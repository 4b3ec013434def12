"""Triage: decides what becomes of an order before any of it is carried out."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from slicebus.agent.decide.job import reconcile
from slicebus.agent.decide.order import orders
from slicebus.agent.decide.order.order_contents import ensure_readable
from slicebus.agent.decide.order.refusals import KindNotServed, refusal
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import JobKey
from slicebus.decisions.commands import Command, Forget, Remember, Requeue
from slicebus.decisions.decider import Incoming
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import (
    Delete,
    JobOrder,
    JobRef,
    Order,
    Pending,
    Relabel,
    Resync,
    Suspend,
    Terms,
    WorkloadSpec,
    version_of,
)


class Triage(StrEnum):
    """What the agent does with an order."""

    TAKEN = "taken"
    """Carry it out."""
    ENDED = "ended"
    """A newer order has ended its job here. Report the end again once the job is gone."""
    UNKNOWN = "unknown"
    """It suspends a job that never was here: end the job, so that no older order creates it."""
    NOT_SERVED = "not_served"
    """No package brings its job kind: answer it without carrying it out."""
    DOUBTFUL = "doubtful"
    """An earlier agent may have carried it out, and what it would create is not there: leave it, and show the manager
    what is there."""
    OVERTAKEN = "overtaken"
    """It says why a request waits, and a newer one has come before it: leave it."""


class Triaged(NamedTuple):
    """What becomes of an order, and what it changes in the tables at once."""

    outcome: Triage
    commands: Sequence[Command]


def triage(store: AgentStore, *, incoming: Incoming[Order], redelivered: bool = False) -> Triaged:
    """What becomes of an order. Raises ProtocolError for one that this agent may not carry out.

    `redelivered`: the broker has delivered it before, to this agent or an earlier one.
    """
    envelope, order, own = incoming.envelope, incoming.message, store.settings
    if envelope.cluster != own.cluster:
        raise ProtocolError(DeadReason.UNKNOWN_CLUSTER, f"for cluster {envelope.cluster!r}, this is {own.cluster!r}")
    if envelope.cluster_uid != own.cluster_uid:
        detail = f"for the cluster {envelope.cluster_uid} of the name {own.cluster!r}, this is {own.cluster_uid}"
        raise ProtocolError(DeadReason.WRONG_CLUSTER, detail)
    if envelope.user_id != own.manager_user:
        detail = f"user {envelope.user_id!r} gives no orders here, only {own.manager_user!r} does"
        raise ProtocolError(DeadReason.WRONG_USER, detail)
    match order:
        case Resync(jobs=jobs):
            return Triaged(Triage.TAKEN, report_again(store, jobs))
        case Terms():
            return Triaged(Triage.TAKEN, [])
        case _:
            return _triage_of_job(store, order, envelope, redelivered=redelivered)


def _triage_of_job(store: AgentStore, order: JobOrder, envelope: Envelope, *, redelivered: bool) -> Triaged:
    job = order.job
    if isinstance(order, WorkloadSpec):
        ensure_readable(order)
    if job.kind not in JOB_RESOURCES:
        return Triaged(Triage.NOT_SERVED, [])
    if not isinstance(order, Delete) and _has_ended(store, order):
        return Triaged(Triage.ENDED, [Remember(table=AgentTable.UNREPORTED, key=job.uid, value=True)])
    match order:
        case Suspend() if _is_unknown(store, order):
            return Triaged(Triage.UNKNOWN, [])
        case Suspend():
            return Triaged(Triage.TAKEN, [Forget(table=AgentTable.CONFIRMED_SUSPENDED, key=JobKey.of(job))])
        case Pending():
            return _triage_notice(store, JobKey.of(job), envelope)
        case WorkloadSpec() if redelivered and _would_create(store, order):
            return Triaged(Triage.DOUBTFUL, [])
        case WorkloadSpec() | Relabel() | Delete():
            return Triaged(Triage.TAKEN, [])


def _triage_notice(store: AgentStore, key: JobKey, envelope: Envelope) -> Triaged:
    """Whether a notice was overtaken by a later one of the same shard of the manager: each shard counts for itself."""
    sent, commands = (envelope.epoch, envelope.sequence), list[Command]()
    if envelope.shard != store.noticed_by.get(key, 0):
        commands.append(Remember(table=AgentTable.NOTICED_BY, key=key, value=envelope.shard))
    elif sent < store.noticed.get(key, sent):
        return Triaged(Triage.OVERTAKEN, [])
    return Triaged(Triage.TAKEN, [*commands, Remember(table=AgentTable.NOTICED, key=key, value=sent)])


def report_again(store: AgentStore, jobs: Sequence[JobRef]) -> list[Command]:
    """Report the status of these jobs again, and publish again every request that no order has answered."""
    known = [(JobKey.of(job), job) for job in jobs if job.kind in JOB_RESOURCES]
    commands: list[Command] = []
    for key, job in known:
        commands += [*forget_reports(store, key), Requeue(job=job, delay_s=0.0)]
    return commands


def answer_unserved(store: AgentStore, *, incoming: Incoming[Order]) -> list[Command]:
    """The answer to an order for a job kind that no package brings. Raises ProtocolError for an order to end a job that
    an agent with the package has left here."""
    order, cluster = incoming.message, store.settings.cluster
    match order:
        case WorkloadSpec(job=job):
            return refusal(order, KindNotServed(job.kind, "its agent has no package for this job kind"), cluster)
        case Suspend(job=job, spec_version=version) | Delete(job=job, spec_version=version):
            if store.holds(job):
                detail = f"no package brings the job kind {job.kind!r}, and objects of {job.key} are here"
                raise ProtocolError(DeadReason.REFUSED, detail)
            return [orders.report_deleted(job, version, cluster)]
        case Relabel() | Pending() | Resync() | Terms():
            return []


def forget_reports(store: AgentStore, key: JobKey) -> list[Forget]:
    """The commands that forget what was published and reported of a job."""
    known = {AgentTable.PUBLISHED: key in store.published, AgentTable.REPORTED: key in store.reported}
    return [Forget(table=name, key=key) for name, is_known in known.items() if is_known]


def _has_ended(store: AgentStore, order: JobOrder) -> bool:
    """Whether the job has a tombstone that is newer than the order, or is to have one by a later order."""
    tombstone, version = store.tombstones.get(order.job.uid), version_of(order)
    if version is None:
        return False
    has_one = tombstone is not None and tombstone.version >= version
    return has_one or store.ends_ordered.get(order.job.uid, 0) > version


def _is_unknown(store: AgentStore, suspend: Suspend) -> bool:
    """Whether the job to suspend never was here."""
    view = store.view(JobKey.of(suspend.job))
    present = view.reading is not None and view.reading.is_of(suspend.job)
    gone = reconcile.gone_report(view, departed=store.departed)
    return not (present or view.is_hidden) and (gone is None or gone.job.uid != suspend.job.uid)


def _would_create(store: AgentStore, order: WorkloadSpec) -> bool:
    """Whether the order would create its job. If it did so before, the job may have asked for less since, and may be
    gone with its namespace, its requests and its version: by now the manager has given away what the order grants."""
    view = store.view(JobKey.of(order.job))
    return view.job is None and not view.is_hidden
