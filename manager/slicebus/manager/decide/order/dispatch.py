"""Writes what a worker shall hold for a job, and publishes the messages that make it so.

The outbox is the Workload itself (rule 5 of the design). Before anything is published, the version and the hash of the
content are written onto it. When the agent reports the version as applied, that is written beside them. This process or
the next publishes again whatever is dispatched and not applied.
"""

from collections.abc import Callable

import msgspec

from slicebus.decisions.commands import Command, Forget, Publish, Remember, Requeue
from slicebus.manager.decide.manifests import pod_set_flavor, without_server_fields
from slicebus.manager.decide.order import reclaim_words
from slicebus.manager.decide.order.outbox import (
    NO_DISPATCH,
    OutboxStep,
    Wanted,
    next_version,
    step,
    write,
    write_applied,
)
from slicebus.manager.decide.order.sent_workloads import sent_workload
from slicebus.manager.state.annotations import DesiredSize, SizeRequest, as_copied
from slicebus.manager.state.outbox import MOST_BELIEVED, NO_REQUEST, Dispatch, Held, Outbox, Progress, applied_version
from slicebus.manager.state.reclaims import kept
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import (
    ClusterName,
    Counts,
    Delete,
    Manifest,
    PodSetFlavor,
    Relabel,
    Suspend,
    WorkloadSpec,
)
from slicebus.slices.api.fingerprints import content_hash, spec_hash
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.suspension import can_suspend
from slicebus.slices.workload.workload import Slice

_IMPOSSIBLE = "impossible"
_SUSPENDED = {"reason": "Suspended", "message": "The manager's job is suspended"}


def hold(view: JobView, slice: Slice) -> list[Command]:
    """Commands that make the worker hold an admitted slice; empty when that is written and published.

    A suspended job that is admitted to another cluster, or to other flavors, needs another copy. The present copy is
    withdrawn first.
    """
    wanted, place = _held(view, slice), view.place
    if wanted is None or place is None:
        return []
    return _order(
        view,
        wanted,
        lambda record: _spec_messages(view, slice, record, place),
        withdraws_because="AdmittedElsewhere",
    )


def next_record(view: JobView, slice: Slice) -> Dispatch | None:
    """The dispatch that makes the worker hold an admitted slice; None where no new one is needed, or another one comes
    first."""
    wanted = _held(view, slice)
    if wanted is None or step(view, wanted) is not OutboxStep.WRITE:
        return None
    return next_version(view.outbox, wanted.record)


def _held(view: JobView, slice: Slice) -> Wanted | None:
    if view.place is None or view.job is None:
        return None
    requested = view.desired.requested
    content = Dispatch(
        version=0,
        hash=spec_hash(view.place, slice.name, kept(view.desired, slice).granted, view.desired.sent),
        answers=requested.key if requested else NO_REQUEST,
        cluster=view.place,
        place=_flavors_hash(slice),
        autoscaled=_autoscaled(view.job),
        bounds=_bounds_hash(view.job, sets_size=view.desired.taken_back is not None, is_impossible=bool(view.problems)),
        taken_back=view.desired.taken_back.id if view.desired.taken_back else msgspec.UNSET,
    )
    must_answer = requested is not None and _holds_back(requested, slice.granted)
    return Wanted(record=content, on=view.workload(slice), must_answer=must_answer)


def suspend(view: JobView, slice: Slice) -> list[Command]:
    """Commands that make the worker hold a job without pods, as its slice is evicted or it is suspended while that has
    quota; empty when that is written and published.

    A job whose kind cannot be suspended is withdrawn when its notice is over: when that is reported, no pod of it is
    left.
    """
    outbox, cluster = view.outbox, view.cluster
    if outbox is None or cluster is None:
        return []
    evicted = slice.conditions.get(Condition.EVICTED, {}) if slice.evicted else _SUSPENDED
    notice = reclaim_words.notice_of_eviction(view, slice, evicted)
    may_wait = view.state.held is Held.HOLD or (view.state.held is Held.SUSPENDED and not view.is_stopped)
    if not (can_suspend(view.ref.kind) or (notice and may_wait)):
        return withdraw(view, reason="Evicted")

    def messages(record: Dispatch) -> list[Publish]:
        message = Suspend(
            job=view.ref,
            spec_version=record.version,
            workload=slice.name,
            reason=f"EvictedDueTo{evicted.get('reason', '')}" if slice.evicted else _SUSPENDED["reason"],
            message=evicted.get("message", ""),
            notice=notice,
            deleted_after=msgspec.UNSET if can_suspend(view.ref.kind) else True,
        )
        return [Publish(cluster=cluster, message=message)]

    content = Dispatch(
        version=0,
        hash=spec_hash(cluster, slice.name, {}, None),
        cluster=cluster,
        place=outbox.record.place,
        suspended=True,
        notice_s=notice.notice_s if notice else 0.0,
    )
    return _order(view, Wanted(record=content, on=view.workload(slice)), messages, withdraws_because="Evicted")


def withdraw(view: JobView, *, reason: str) -> list[Command]:
    """Commands that make the worker hold nothing of the job; empty when that is written and published."""
    outbox, cluster = view.outbox, view.cluster
    if outbox is None or cluster is None:
        return []

    def messages(record: Dispatch) -> list[Publish]:
        return [Publish(cluster=cluster, message=Delete(job=view.ref, spec_version=record.version, reason=reason))]

    return _order(
        view, Wanted(record=Dispatch.absent(cluster), on=outbox.recorded_on), messages, withdraws_because=reason
    )


def note_unknown_end(view: JobView) -> list[Command]:
    """Commands that record that the worker's copy is gone and may have ended, and that withdraw what is left of it.
    Empty when the copy is withdrawn already."""
    outbox = view.outbox
    if outbox is None or view.cluster is None or view.is_withdrawing:
        return []
    wanted = msgspec.structs.replace(Dispatch.absent(view.cluster), unknown_end=True)
    return [write(next_version(outbox, wanted), outbox.recorded_on)]


def has_unknown_end(view: JobView) -> bool:
    """Whether the worker's copy is gone and may have ended, and the job has not given its quota back."""
    return view.outbox is not None and view.outbox.record.unknown_end is True


def forget_unknown_end(view: JobView) -> list[Command]:
    """Commands after which the job may be dispatched anew."""
    outbox = view.outbox
    if outbox is None or outbox.record.unknown_end is not True:
        return []
    return [write(msgspec.structs.replace(outbox.record, unknown_end=msgspec.UNSET), outbox.recorded_on)]


def abandon(view: JobView) -> list[Command]:
    """Commands after which a given-up cluster counts as holding nothing, although it may have a copy left.

    By then its agent lets no pod start. The copy is removed before it may again: see `recall`.
    """
    outbox = view.outbox
    if outbox is None or view.cluster is None or view.is_withdrawn:
        return []
    return _leave_copy(outbox, view.cluster, above=outbox.seen)


def recall(view: JobView) -> list[Command]:
    """The deletes of copies left on given-up clusters, once for each hello of their agents."""
    return [
        command
        for cluster, version in view.left_copies.items()
        if view.recalled.get(cluster, 0) < version
        for command in _noted(
            ManagerTable.RECALLED,
            (cluster, view.ref),
            version,
            [Publish(cluster=cluster, message=Delete(job=view.ref, spec_version=version, reason="ClusterLost"))],
        )
    ]


def publish_again(view: JobView) -> list[Command]:
    """Commands after which everything that the worker has not reported counts as not published."""
    return [Forget(table=ManagerTable.PUBLISHED, key=view.ref), Requeue(job=view.ref, delay_s=0.0)]


def has_copy(view: JobView) -> bool:
    """Whether the worker has reported a copy of the job since its last delete, and since it lost one, or has yet to
    report that it deleted one. Who asks for a size has a copy, also where the report of it is lost."""
    if view.is_withdrawing:
        return not view.is_withdrawn
    if _has_asked(view):
        return True
    gone = view.outbox.record.newest_gone if view.outbox is not None else 0
    return any(applied_version(workload) > gone for workload in view.workloads.values())


def may_have_next_copy(view: JobView) -> bool:
    """Whether the worker of a job that has ended may run another copy of it: its quota stays until that has gone.

    That copy was withdrawn before the end was shown (`message_handlers.status`). Nothing starts on a given-up cluster.
    """
    return view.is_withdrawing and not view.is_withdrawn and not view.given_up


def is_unanswered(view: JobView) -> bool:
    """Whether the worker has asked for a size since its last order."""
    requested, outbox = view.desired.requested, view.outbox
    if requested is None or outbox is None:
        return False
    return _has_asked(view) and outbox.record.answers != requested.key


def _has_asked(view: JobView) -> bool:
    """Whether the copy that the worker has, as far as the manager knows, has asked for a size."""
    requested = view.desired.requested
    is_known = view.outbox is not None and view.state.progress is not Progress.LOST
    return requested is not None and requested.asks_for_size and is_known


def take_as_applied(view: JobView, *, version: int) -> list[Command]:
    """Commands that record this version as applied, if it is the newest."""
    outbox = view.outbox
    if outbox is None or outbox.record.version != version or outbox.is_reported:
        return []
    return [write_applied(outbox)]


def renew(view: JobView, *, above: int, has_copy: bool) -> list[Command]:
    """Commands that dispatch anew what the worker shall hold, with a version above every one that was seen.

    `has_copy`: whether the worker has a copy of the job, whatever it is like.

    The worker had reported it, but has lost it or holds something else. So the reported version proves nothing. A copy
    that is left on a given-up cluster stays left, and is recalled with a version above its own.
    """
    newest = next(map(view.workload, reversed(view.slices)), None)
    outbox = view.outbox or (Outbox(NO_DISPATCH, newest, applied_version(newest)) if newest else None)
    if outbox is None:
        return []
    seen = max(outbox.seen, min(above, MOST_BELIEVED))
    if view.cluster is not None and view.has_left_copy:
        return _leave_copy(outbox, view.cluster, above=seen)
    return [write(outbox.record.lost(seen=seen, has_copy=has_copy), outbox.recorded_on)]


def note_vanished(view: JobView, *, vanished: bool = True) -> list[Command]:
    """Commands that record whether the worker has reported its copy as gone; empty when that is recorded.

    This process or the next decides from the record what follows.
    """
    outbox = view.outbox
    if outbox is None or outbox.record.has_vanished is vanished or view.is_withdrawing:
        return []
    noted = msgspec.structs.replace(outbox.record, vanished=True if vanished else msgspec.UNSET)
    return [write(noted, outbox.recorded_on)]


def as_wanted(job: Manifest, desired: DesiredSize) -> Manifest:
    """The job as its worker shall have it: with its user's counts, those that a fixed size keeps, those before a
    scale-up that was taken back, or those that others leave it, and with the fields that only a copy may have."""
    kind = KINDS[job["kind"]]
    if desired.kept is None and desired.taken_back is not None:
        return as_copied(kind.with_pods(job, desired.sent, present=job))
    is_other = desired.requested is not None or desired.kept is not None
    return as_copied(kind.with_counts(job, desired.sent) if is_other else job)


def _order(
    view: JobView, wanted: Wanted, messages: Callable[[Dispatch], list[Publish]], *, withdraws_because: str
) -> list[Command]:
    """The commands of the next step. `messages` makes those that a worker gets for a dispatch."""
    match step(view, wanted):
        case OutboxStep.NOTHING:
            return []
        case OutboxStep.PUBLISH:
            assert view.outbox is not None
            return _published(view, view.outbox.record, messages)
        case OutboxStep.WRITE:
            record = next_version(view.outbox, wanted.record)
            return [write(record, wanted.on), *_published(view, record, messages)]
        case OutboxStep.WITHDRAW:
            return abandon(view) if view.given_up else withdraw(view, reason=withdraws_because)


def _published(view: JobView, record: Dispatch, messages: Callable[[Dispatch], list[Publish]]) -> list[Command]:
    return _noted(ManagerTable.PUBLISHED, view.ref, record.version, messages(record))


def _noted(table: ManagerTable, key: object, version: int, messages: list[Publish]) -> list[Command]:
    """The commands that publish messages, after the note that they are published: the answer may ask for them again
    before the confirm. The worker needs all of them, so all are due again when one is not confirmed."""
    forget = Forget(table=table, key=key)
    publishes = [msgspec.structs.replace(message, unless_confirmed=forget) for message in messages]
    return [Remember(table=table, key=key, value=version), *publishes]


def _leave_copy(outbox: Outbox, cluster: ClusterName, *, above: int) -> list[Command]:
    version = above + 1
    record = msgspec.structs.replace(
        Dispatch.absent(cluster),
        version=version,
        previous_cluster=cluster,
        left_copies=outbox.record.left_copies | {cluster: version},
        unknown_end=outbox.record.unknown_end,
    )
    return [write(record, outbox.recorded_on, applied=version)]


def _flavors_hash(slice: Slice) -> str:
    """A hash of the flavors by pod set and resource."""
    return slice.admission.flavors_hash if slice.admission else ""


def _autoscaled(job: Manifest) -> bool | msgspec.UnsetType:
    """Whether a copy that is made of the job has Ray's autoscaler; unset where its kind has none."""
    kind = KINDS[job["kind"]]
    return kind.is_autoscaled(as_copied(job)) if kind.autoscaled(job) is not job else msgspec.UNSET


def _bounds_hash(job: Manifest, *, sets_size: bool, is_impossible: bool) -> str:
    """A hash of the bounds that a job's manifest has. An impossible one sets no size on the worker: what the manager
    sets is ordered again when it is mended."""
    if sets_size and is_impossible:
        return _IMPOSSIBLE
    bounds = KINDS[job["kind"]].bounds(as_copied(job))
    return content_hash(bounds) if bounds else ""


def _holds_back(requested: SizeRequest, granted: Counts) -> bool:
    """Whether the worker runs fewer pods than it may, until its request is answered."""
    return any(requested.granted.get(name, 0) < count for name, count in granted.items())


def _spec_messages(view: JobView, slice: Slice, record: Dispatch, cluster: ClusterName) -> list[Publish]:
    """The spec, and the relabel where the worker's copy may still name another slice."""
    assert view.job is not None
    workload, desired = view.workload(slice), view.desired
    spec = WorkloadSpec(
        job=view.ref,
        spec_version=record.version,
        workload=sent_workload(view, slice),
        manifest={k: v for k, v in without_server_fields(as_wanted(view.job, desired)).items() if k != "status"},
        granted=slice.granted,
        flavors={
            pod_set.name: _flavor(view, slice, pod_set.name)
            for pod_set in slice.pod_sets
            if slice.admission is None or _has_place(view, slice, pod_set.name)
        },
        answers=record.answers,
        resized_because=desired.taken_back.message if desired.taken_back else msgspec.UNSET,
        taken_back=desired.taken_back.id if desired.taken_back else msgspec.UNSET,
        resized_reason=reclaim_words.resized_reason(desired),
        notice=reclaim_words.notice_of_shrink(desired),
        waits_for=reclaim_words.waits_for(desired),
    )
    messages = [Publish(cluster=cluster, message=spec, correlation=desired.correlation)]
    if record.moved is True or (slice.replaces and applied_version(workload) == 0):
        relabel = Relabel(
            job=view.ref,
            spec_version=record.version,
            from_workload=slice.replaces.partition("/")[2] if slice.replaces else slice.name,
            to_workload=slice.name,
            granted=slice.granted,
            answers=record.answers,
        )
        messages.append(Publish(cluster=cluster, message=relabel, correlation=desired.correlation))
    return messages


def _has_place(view: JobView, slice: Slice, pod_set: str) -> bool:
    """Whether a pod set has flavors, and each of them is there. Pods without one stay gated where they are not placed
    yet, as in a copy that is made of an order for one that was lost meanwhile."""
    if slice.admission is None or not slice.admission.is_placed(pod_set):
        return False
    return view.flavors.keys() >= {*slice.admission.flavors_of(pod_set).values()}


def _flavor(view: JobView, slice: Slice, pod_set: str) -> PodSetFlavor:
    names = slice.admission.flavors_of(pod_set).values() if slice.admission else ()
    return pod_set_flavor(view.flavors, names)
