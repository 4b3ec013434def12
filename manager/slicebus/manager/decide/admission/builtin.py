"""Reconciles one job: makes and changes its slices, dispatches them to its worker, ends the job.

Level-triggered: the decision depends on the present objects, not on what happened, and is made again whenever one of
them changes. A job that needs nothing gives no commands.
"""

from collections.abc import Sequence

from slicebus.decisions.commands import Command, Create, Emit, Patch, Remove, Requeue
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.admission import (
    evictions,
    execution_limit,
    honoring,
    readiness,
    refusals,
    refused_there,
    user_suspension,
)
from slicebus.manager.decide.job import (
    charges,
    devices,
    edits,
    endings,
    execution_time,
    left_out,
    pod_templates,
    pods_left,
    reclaims,
    status_mirror,
    unknown_ends,
    unshown_ends,
)
from slicebus.manager.decide.manifests import (
    finalizer_patch,
    findings_patch,
    free_name,
    has_finalizer,
    workload_manifest,
)
from slicebus.manager.decide.order import dispatch, holding, record_copies, size_requests
from slicebus.manager.state.annotations import DesiredSize, annotation
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, JobPhase, Manifest
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import Finding
from slicebus.slices.api.kueue import Condition, FinishedReason
from slicebus.slices.workload.chain import (
    ChainCommand,
    CreateSlice,
    FinishSlice,
    Reclaim,
    RefuseScaling,
    SetCounts,
    given_back,
    plan,
)
from slicebus.slices.workload.names import group_of, slice_name
from slicebus.slices.workload.workload import Slice

_KEPT = "Its {} was deleted, and stays for a finalizer of somebody else"
_FINISHED = {JobPhase.SUCCEEDED: FinishedReason.SUCCEEDED, JobPhase.FAILED: FinishedReason.FAILED}


def reconcile(view: JobView, now: str) -> list[Command]:
    """The commands for everything that a job needs now."""
    return dispatch.recall(view) + _decide(view, now)


def _decide(view: JobView, now: str) -> list[Command]:
    if view.job is None or "deletionTimestamp" in view.job["metadata"]:
        return _finish_kept(view, now) or end(view, reason="JobDeleted", ended=view.slices, orphaned=_orphaned(view))
    if not view.is_managed:
        # A job that opted out while it ran gets the size that it ended with only after its Workloads are let go.
        return status_mirror.complete(view.job) if view.slices else []
    if (waiting := pods_left.reconcile(view, now=now)) is not None:
        return _finish_others(view, now) or waiting
    if view.outcome.phase in _FINISHED:
        steps, completes = _finish_ended(view, now), status_mirror.complete(view.job)
        # That a Workload is let go has no job reconciled.
        return [*steps, Requeue(job=view.ref, delay_s=0.0)] if steps and completes else steps or completes
    deleting = [slice for slice in view.unfinished if slice.deleting]
    if deleting and (waiting := endings.await_written_end(view, now=now)):
        return waiting
    if deleting:
        # The worker's request may stand on one of these.
        return (
            _finish_kept(view, now) or size_requests.carry(view) or end(view, reason="WorkloadDeleted", ended=deleting)
        )
    if (deletion := endings.reconcile_vanished(view)) is not None:
        return deletion
    if not view.unfinished and (problems := refusals.problems_of(view, view.job)):
        return refusals.refuse(view.job, problems, now=now)
    if view.problems and view.holder is None and view.is_without_pods and not dispatch.has_unknown_end(view):
        return _give_up(view, now=now)
    return _finish_former(view, now=now) or _reconcile_chain(view, view.job, now)


def _finish_ended(view: JobView, now: str) -> list[Command]:
    """Finish the slices of a job that has ended, delete its copy, and release them. Where another copy of it may come
    to be, its slices stay for that one."""
    if dispatch.may_have_next_copy(view):
        return end(view, reason="JobFinished", ended=())
    reason, message = _FINISHED[view.outcome.phase], view.outcome.message
    finishes = [_finish(view, slice, reason=reason, message=message, now=now) for slice in view.unfinished]
    # The order to withdraw is written on one of these Workloads, so it is decided after their own writes.
    return finishes or end(view, reason="JobFinished", ended=view.slices)


def _finish_kept(view: JobView, now: str) -> list[Command]:
    """Finish slices that are deleted, or whose job is, and stay for a finalizer of somebody else, when their worker
    holds nothing: they would keep their quota. They are released afterwards."""
    if not view.is_withdrawn or view.left_copies:
        return []
    job = view.job if view.job is not None and endings.is_kept_by_others(view.job) else None
    finishes = [
        _finish(view, slice, reason=FinishedReason.OUT_OF_SYNC, message=_KEPT.format(kept["kind"]), now=now)
        for slice in view.unfinished
        for kept in [job or view.workload(slice)]
        if endings.is_kept_by_others(kept)
    ]
    return record_copies.copies(view) + finishes if finishes else []


def _finish_others(view: JobView, now: str) -> list[Command]:
    """Finish the slices of an ended job but the one that is charged for the pods left."""
    outcome = view.outcome if view.job is not None else None
    reason = _FINISHED.get(outcome.phase) if outcome is not None else None
    return [
        _finish(view, slice, reason=reason, message=outcome.message if outcome else "", now=now)
        for slice in view.unfinished
        if slice is not view.waits_for_pods and reason is not None
    ]


def _give_up(view: JobView, *, now: str) -> list[Command]:
    """Finish the slices of a job that waits, and that an edit has made impossible: it is refused until it is mended.

    Where it is suspended on a worker, its copy stays. What runs runs on, and says that the edit has no effect.
    """
    message = "; ".join(problem.message for problem in view.problems)
    waiting = [slice for slice in view.unfinished if slice.admission is None]
    return [_finish(view, slice, reason=FinishedReason.OUT_OF_SYNC, message=message, now=now) for slice in waiting]


def _finish_former(view: JobView, *, now: str) -> list[Command]:
    """Finish the slices of a job that waits, and that somebody gave other pod sets: it gets a slice of those."""
    former = pod_templates.with_former_pod_sets(view)
    message = f"The job's pod sets are {', '.join(sorted(view.desired.own))} by now" if former else ""
    return [_finish(view, slice, reason=FinishedReason.OUT_OF_SYNC, message=message, now=now) for slice in former]


def _reconcile_chain(view: JobView, job: Manifest, now: str) -> list[Command]:
    """Make the chain follow the desired size, dispatch its newest slice, and release replaced slices."""
    if dispatch.has_unknown_end(view):
        return _stop(view, job, now)
    if restarted := unknown_ends.restarted(view, now=now):
        return restarted
    if copied := edits.copied(view, job) or size_requests.carry(view):
        return copied
    if followed := user_suspension.reconcile(view, now=now):
        return followed
    if view.is_suspended_by_user and not view.unfinished:
        return []
    if resumed := evictions.resume_without_slices(view):
        return resumed
    if over := execution_limit.reconcile(view, now=now) or charges.end_former(view, now=now):
        return over
    if refused := refused_there.reconcile(view, now=now) or refusals.take_back(view, now=now):
        return refused
    if stuck := readiness.reconcile(view, job, now=now) or reclaims.reconcile(view, now=now):
        return stuck
    desired = reclaims.with_kept_quota(view)
    edited = refusals.edited_pods(view, desired)
    released = given_back(view.holder, desired.counts) if view.holder else []
    planned = [*edited, *plan(view.slices, desired.counts, finished=desired.finished), *released]
    may_send = refusals.may_order(view)
    resumed = evictions.resume(view, view.holder) if view.holder is not None else []
    commands: list[Command] = []
    for command in planned:
        commands += _commands_for(view, job, command, desired=desired, orders=may_send and not resumed, now=now)
    if not any(isinstance(command, RefuseScaling) for command in planned):
        commands += refusals.clear_refusal(view, now=now)
    resized = {command.slice.key for command in planned if isinstance(command, (SetCounts, Reclaim))}
    if view.holder is not None and view.holder.key not in resized:
        commands += [*resumed, *(holding.hold(view, view.holder, now=now) if may_send else [])]
    elif view.evicted is not None and view.evicted.key not in resized:
        commands += evictions.reconcile(view, view.evicted, wanted=desired.counts, now=now)
    # The newest dispatch is released only after the next one is written: the job's copy would be forgotten with it.
    recorded_on = view.outbox.recorded_on if view.outbox else None
    ended = [slice for slice in view.slices if slice.finished and view.workload(slice) is not recorded_on]
    # A reconcile that writes Workloads comes again: two writes of one would conflict.
    writes = any(isinstance(command, (Create, Patch)) for command in commands)
    told = [] if writes else refused_there.show(view, job, now=now) or honoring.of_job(view, job, now=now)
    return [
        *commands,
        *told,
        *_release(ended, view),
        *_replaced(view, planned),
        *_requeue_after(view, now=now),
    ]


def _requeue_after(view: JobView, *, now: str) -> list[Command]:
    """Of several delays only the earliest counts."""
    rules = (readiness, execution_limit, refused_there, reclaims)
    return [command for rule in rules for command in rule.requeue_after(view, now=now)]


def _replaced(view: JobView, planned: Sequence[ChainCommand]) -> list[Command]:
    """The Events on slices that are replaced; they come after every command that the worker waits for."""
    return [
        Emit(regarding=view.workload(command.slice), reason=command.reason, note=command.message)
        for command in planned
        if isinstance(command, FinishSlice) and command.reason is FinishedReason.SLICE_REPLACED
    ]


def _stop(view: JobView, job: Manifest, now: str) -> list[Command]:
    """Give the quota of a job with an unknown end back, as for an eviction. What only shows it holds nothing up."""
    if stopping := unknown_ends.stop(view, now=now):
        return stopping
    ended = [command for command in plan(view.slices, view.desired.counts) if isinstance(command, FinishSlice)]
    if view.evicted is not None and ended:
        return [
            _finish(view, command.slice, reason=command.reason, message=command.message, now=now) for command in ended
        ]
    following = evictions.reconcile(view, view.evicted, wanted=view.desired.counts, now=now) if view.evicted else []
    shown = [command for command in following if isinstance(command, Patch) and command.only_shows]
    if following != shown:
        return following
    withdrawn = dispatch.withdraw(view, reason=unknown_ends.VANISHED)
    return [
        *shown,
        *(withdrawn or [*unknown_ends.show_suspended(view, job, now=now), *unknown_ends.close(view)]),
    ]


def _commands_for(
    view: JobView, job: Manifest, command: ChainCommand, *, desired: DesiredSize, orders: bool, now: str
) -> list[Command]:
    """The commands for one change of the chain. `orders`: whether the slice that the worker holds may be ordered with
    its counts."""
    match command:
        case CreateSlice():
            return _create(view, job, command, desired=desired)
        case SetCounts(slice=slice, counts=counts):
            return holding.set_counts(view, slice, counts, orders=orders and slice == view.holder, now=now)
        case Reclaim(slice=slice, counts=counts):
            return [_reclaim(view, slice, counts)]
        case FinishSlice(slice=slice, reason=reason, message=message):
            return [_finish(view, slice, reason=reason, message=message, now=now)]
        case RefuseScaling(slice=slice, message=message):
            return refusals.refuse_scaling(view, job, slice, message=message, now=now)


_COPIED = (api_names.AVOIDED_CLUSTERS_ANNOTATION, api_names.GANG_ANNOTATION)
"""What a new slice has from the one before it."""


def _create(view: JobView, job: Manifest, command: CreateSlice, *, desired: DesiredSize) -> list[Command]:
    ref = view.ref
    base = slice_name(
        kind=ref.kind, group=group_of(ref.api_version), name=ref.name, uid=ref.uid, extra=desired.name_seed
    )
    name = free_name(base, view.slices)
    elastic = {} if view.is_fixed else {kueue.ELASTIC_ANNOTATION: "true"}
    annotations = elastic | {kueue.SLICE_NAME_ANNOTATION: command.chain or name}
    if command.replaces:
        annotations[kueue.REPLACEMENT_FOR_ANNOTATION] = command.replaces
    if view.holder is not None:
        annotations |= execution_time.said_by(view.workload(view.holder), view.holder)
    annotations |= size_requests.annotations(view) | reclaims.annotations(view)
    said = edits.placement_choices(job) | edits.elasticity(view, job)
    annotations |= {name: wanted for name, wanted in said.items() if wanted}
    if annotation(job, api_names.PARTIAL_SCALE_UP_ANNOTATION) == "true":
        annotations[api_names.PARTIAL_SCALE_UP_ANNOTATION] = "true"
    if view.unfinished:
        before = view.workload(view.unfinished[-1])
        annotations |= {noted: value for noted in _COPIED if (value := annotation(before, noted))}
    if (observed := charges.known_beforehand(view)) is not None:
        annotations[api_names.OBSERVED_ANNOTATION] = observed.to_annotation()
    pod_sets = pod_templates.pod_sets(job, view, counts=command.counts)
    if claimed := devices.note(view, pod_sets):
        annotations[api_names.DEVICES_ANNOTATION] = claimed
    if sizes := pod_templates.replica_sizes(view, job, [pod_set["name"] for pod_set in pod_sets]):
        annotations[api_names.REPLICA_SIZES_ANNOTATION] = sizes
    known = map(edits.priority_now, map(view.workload, view.slices))
    priority = edits.priority(job, view) or next(known, {})
    holder = view.workload(view.holder) if view.holder is not None else None
    labels, limit = execution_time.kept(holder) if holder is not None else execution_time.fields(job)
    manifest = workload_manifest(
        job,
        pod_sets,
        ref=ref,
        name=name,
        queue=view.queue,
        annotations=annotations,
        spec=priority | limit,
        labels=labels,
    )
    note = f"Created Workload: {ref.namespace}/{name}"
    # Of what was taken back or given an Event has told already.
    is_told = api_names.RECLAIMED_ANNOTATION in annotations
    return [
        Create(resource=WORKLOADS, manifest=manifest),
        *([] if is_told else [Emit(regarding=job, reason="CreatedWorkload", note=note)]),
        *([] if view.slices else left_out.tell(job)),
    ]


def _reclaim(view: JobView, slice: Slice, counts: Counts) -> Command:
    body = {"status": {"reclaimablePods": [{"name": name, "count": count} for name, count in counts.items()]}}
    return Patch(resource=WORKLOADS, target=view.workload(slice), body=body, subresource="status")


def _finish(view: JobView, slice: Slice, *, reason: FinishedReason, message: str, now: str) -> Command:
    workload = view.workload(slice)
    finding = Finding(Condition.FINISHED, True, reason, message or f"Job {reason.lower()}")
    body = findings_patch(workload, finding, *unshown_ends.findings(view), now=now)
    return Patch(resource=WORKLOADS, target=workload, body=body, subresource="status")


def end(view: JobView, *, reason: str, ended: Sequence[Slice], orphaned: Sequence[Command] = ()) -> list[Command]:
    """Delete the worker's copy first; release the Workloads when the worker has reported that."""
    if not view.is_withdrawn:
        return dispatch.withdraw(view, reason=reason)
    if view.left_copies:
        return []
    released = [*orphaned] or _release(ended, view)
    return record_copies.copies(view) + released if released else []


def _orphaned(view: JobView) -> list[Command]:
    """Remove orphaned Workloads: nobody else does, and they would keep their quota."""
    return [
        Remove(resource=WORKLOADS, target=workload)
        for workload in view.workloads.values()
        if endings.is_orphan(workload) and "deletionTimestamp" not in workload["metadata"]
    ]


def _release(ended: Sequence[Slice], view: JobView) -> list[Command]:
    workloads = [view.workload(slice) for slice in ended]
    return [
        Patch(resource=WORKLOADS, target=workload, body=finalizer_patch(workload))
        for workload in workloads
        if has_finalizer(workload)
    ]
