"""Reconciles one job: makes and changes its slices, dispatches them to its worker, ends the job.

Level-triggered: the decision depends on the present objects, not on what happened, and is made again whenever one of
them changes. A job that needs nothing gives no commands.
"""

from collections.abc import Sequence

import msgspec

from slicebus.decisions.commands import Command, Create, Emit, Patch, Remove
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.manager.decide.admission import evictions, readiness
from slicebus.manager.decide.job import edits, endings, pod_templates, unknown_ends
from slicebus.manager.decide.manifests import (
    finalizer_patch,
    findings_patch,
    free_name,
    has_finalizer,
    priority_class,
    workload_manifest,
)
from slicebus.manager.decide.order import dispatch, holding
from slicebus.manager.state.annotations import DesiredSize, annotation, as_copied
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, JobPhase, Manifest
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import Finding, has_finding
from slicebus.slices.api.kueue import Condition, FinishedReason
from slicebus.slices.api.selectors import parse_selector
from slicebus.slices.jobs import KINDS, Problem
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

_FINISHED = {JobPhase.SUCCEEDED: FinishedReason.SUCCEEDED, JobPhase.FAILED: FinishedReason.FAILED}


def reconcile(view: JobView, now: str) -> list[Command]:
    """The commands for everything that a job needs now."""
    return dispatch.recall(view) + _decide(view, now)


def _decide(view: JobView, now: str) -> list[Command]:
    if view.job is None or "deletionTimestamp" in view.job["metadata"]:
        return end(view, reason="JobDeleted", ended=view.slices, orphaned=_orphaned(view))
    if not view.is_managed:
        return []
    kind = KINDS[view.ref.kind]
    outcome = kind.outcome(view.job)
    if outcome.phase in _FINISHED:
        if dispatch.may_have_next_copy(view):
            return end(view, reason="JobFinished", ended=())
        reason = _FINISHED[outcome.phase]
        finishes = [_finish(view, slice, reason=reason, message=outcome.message, now=now) for slice in view.unfinished]
        # The order to withdraw is written on one of these Workloads, so it is decided after their own writes.
        return finishes or end(view, reason="JobFinished", ended=view.slices)
    deleting = [slice for slice in view.unfinished if slice.deleting]
    if deleting:
        return end(view, reason="WorkloadDeleted", ended=deleting)
    if (deletion := endings.reconcile_vanished(view)) is not None:
        return deletion
    if not view.slices and (problems := [*kind.problems(as_copied(view.job)), *_other_problems(view.job, view)]):
        return _refuse(view.job, problems, now=now)
    return _reconcile_chain(view, view.job, now)


def _reconcile_chain(view: JobView, job: Manifest, now: str) -> list[Command]:
    """Make the chain follow the desired size, dispatch its newest slice, and release replaced slices."""
    if dispatch.has_unknown_end(view):
        return _stop(view, job, now)
    if restarted := unknown_ends.restarted(view, now=now):
        return restarted
    if copied := edits.copied(view, job):
        return copied
    if stuck := readiness.reconcile(view, job, now=now):
        return stuck
    desired = _with_kept_quota(view.desired, view)
    edited = _edited_pods(view)
    released = given_back(view.holder, desired.counts) if view.holder else []
    planned = [*edited, *plan(view.slices, desired.counts, finished=desired.finished), *released]
    # A worker applies only sizes to a copy, but it would make a missing copy with the edited pods.
    may_send = not edited or dispatch.has_copy(view)
    resumed = evictions.resume(view, view.holder) if view.holder is not None else []
    commands: list[Command] = []
    for command in planned:
        commands += _commands_for(view, job, command, desired=desired, orders=may_send and not resumed, now=now)
    if not any(isinstance(command, RefuseScaling) for command in planned):
        commands += _clear_refusal(view, now=now)
    resized = {command.slice.key for command in planned if isinstance(command, (SetCounts, Reclaim))}
    if view.holder is not None and view.holder.key not in resized:
        commands += [*resumed, *(holding.hold(view, view.holder, now=now) if may_send else [])]
    elif view.evicted is not None and view.evicted.key not in resized:
        commands += evictions.reconcile(view, view.evicted, wanted=desired.counts, now=now)
    # The newest dispatch is released only after the next one is written: the job's copy would be forgotten with it.
    recorded_on = view.outbox.recorded_on if view.outbox else None
    ended = [slice for slice in view.slices if slice.finished and view.workload(slice) is not recorded_on]
    return [*commands, *_release(ended, view), *_replaced(view, planned), *readiness.requeue_after(view, now=now)]


def _replaced(view: JobView, planned: Sequence[ChainCommand]) -> list[Command]:
    """The Events on slices that are replaced; they come after every command that the worker waits for."""
    return [
        Emit(regarding=view.workload(command.slice), reason=command.reason, note=command.message)
        for command in planned
        if isinstance(command, FinishSlice) and command.reason is FinishedReason.SLICE_REPLACED
    ]


def _stop(view: JobView, job: Manifest, now: str) -> list[Command]:
    """Give the quota of a job with an unknown end back, as for an eviction."""
    if stopping := unknown_ends.stop(view, now=now):
        return stopping
    ended = [command for command in plan(view.slices, view.desired.counts) if isinstance(command, FinishSlice)]
    if view.evicted is not None and ended:
        return [
            _finish(view, command.slice, reason=command.reason, message=command.message, now=now) for command in ended
        ]
    following = evictions.reconcile(view, view.evicted, wanted=view.desired.counts, now=now) if view.evicted else []
    return (
        following
        or dispatch.withdraw(view, reason=unknown_ends.VANISHED)
        or unknown_ends.show_suspended(view, job, now=now)
        or unknown_ends.close(view)
    )


def _edited_pods(view: JobView) -> list[ChainCommand]:
    """Refuse edited pods, which are no resize, beside every other command."""
    held = view.holder
    message = pod_templates.refused(held, view) if held else ""
    return [RefuseScaling(slice=held, message=message)] if held and message else []


def _with_kept_quota(desired: DesiredSize, view: JobView) -> DesiredSize:
    """The desired size, with the granted counts kept until the worker has carried out a shrink.

    The granted counts are capped by a request that no order has answered: the worker runs no more than that, and does
    not ask for the same size again. An answered request proves nothing: the spec may have grown and shrunk since.
    """
    held = view.holder.granted if view.holder else {}
    if dispatch.is_unanswered(view):
        assert desired.requested is not None
        held = {name: min(count, desired.requested.counts.get(name, count)) for name, count in held.items()}
    if held.keys() != desired.counts.keys():
        return desired
    return msgspec.structs.replace(desired, counts={name: max(n, held[name]) for name, n in desired.counts.items()})


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
            return _refuse_scaling(view, job, slice, message=message, now=now)


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
    annotations |= {name: wanted for name, wanted in edits.placement_choices(job).items() if wanted}
    if annotation(job, api_names.PARTIAL_SCALE_UP_ANNOTATION) == "true":
        annotations[api_names.PARTIAL_SCALE_UP_ANNOTATION] = "true"
    before = view.workload(view.unfinished[-1]) if view.unfinished else None
    if before is not None and (avoided := annotation(before, api_names.AVOIDED_CLUSTERS_ANNOTATION)):
        annotations[api_names.AVOIDED_CLUSTERS_ANNOTATION] = avoided
    pod_sets = pod_templates.pod_sets(job, view, counts=command.counts)
    if sizes := _replica_sizes(job, pod_sets):
        annotations[api_names.REPLICA_SIZES_ANNOTATION] = msgspec.json.encode(sizes, order="sorted").decode()
    known = map(edits.priority_now, map(view.workload, view.slices))
    priority = edits.priority(job, view) or next(known, {})
    manifest = workload_manifest(
        job,
        pod_sets,
        ref=ref,
        name=name,
        queue=view.queue,
        annotations=annotations,
        priority=priority,
    )
    note = f"Created Workload: {ref.namespace}/{name}"
    return [
        Create(resource=WORKLOADS, manifest=manifest),
        Emit(regarding=job, reason="CreatedWorkload", note=note),
    ]


def _replica_sizes(job: Manifest, pod_sets: list[Manifest]) -> dict[str, int]:
    """The sizes of replicas of more than one pod, by pod set: a part of such a replica is of no use."""
    kind = KINDS[job["kind"]]
    sizes = {pod_set["name"]: kind.replica_size(job, pod_set["name"]) for pod_set in pod_sets}
    return {name: size for name, size in sizes.items() if size > 1}


def _other_problems(job: Manifest, view: JobView) -> list[Problem]:
    """The problems of the job's priority class, cluster selector and fixed size."""
    problems = []
    if view.is_fixed and KINDS[view.ref.kind].is_autoscaled(as_copied(job)):
        message = f'with the autoscaler on a job needs the annotation {kueue.ELASTIC_ANNOTATION}: "true"'
        problems.append(Problem("AutoscalingOfFixedSize", message))
    if not edits.priority(job, view):
        problems.append(Problem("PriorityClassNotFound", f"WorkloadPriorityClass {priority_class(job)} doesn't exist"))
    try:
        parse_selector(annotation(job, api_names.CLUSTER_SELECTOR_ANNOTATION) or "")
    except ValueError as error:
        message = f"the annotation {api_names.CLUSTER_SELECTOR_ANNOTATION} is no label selector: {error}"
        problems.append(Problem("InvalidClusterSelector", message))
    return problems


def _reclaim(view: JobView, slice: Slice, counts: Counts) -> Command:
    body = {"status": {"reclaimablePods": [{"name": name, "count": count} for name, count in counts.items()]}}
    return Patch(resource=WORKLOADS, target=view.workload(slice), body=body, subresource="status")


def _finish(view: JobView, slice: Slice, *, reason: FinishedReason, message: str, now: str) -> Command:
    workload = view.workload(slice)
    finding = Finding(Condition.FINISHED, True, reason, message or f"Job {reason.lower()}")
    return Patch(
        resource=WORKLOADS, target=workload, body=findings_patch(workload, finding, now=now), subresource="status"
    )


def _refuse_scaling(view: JobView, job: Manifest, slice: Slice, *, message: str, now: str) -> list[Command]:
    workload = view.workload(slice)
    finding = Finding(api_names.RESIZABLE_CONDITION, False, api_names.STRUCTURAL_CHANGE, message)
    if has_finding(workload, finding):
        return []
    body = findings_patch(workload, finding, now=now)
    return [
        Patch(resource=WORKLOADS, target=workload, body=body, subresource="status"),
        Emit(regarding=job, reason=finding.reason, note=message, warning=True),
    ]


def _clear_refusal(view: JobView, *, now: str) -> list[Command]:
    cleared = Finding(api_names.RESIZABLE_CONDITION, True, "Resizable", "The job's pod sets are those of its workload")
    return [
        Patch(
            resource=WORKLOADS,
            target=view.workload(slice),
            body=findings_patch(view.workload(slice), cleared, now=now),
            subresource="status",
        )
        for slice in view.unfinished
        if slice.conditions.get(api_names.RESIZABLE_CONDITION, {}).get("status") == "False"
    ]


def end(view: JobView, *, reason: str, ended: Sequence[Slice], orphaned: Sequence[Command] = ()) -> list[Command]:
    """Delete the worker's copy first; release the Workloads when the worker has reported that."""
    if not view.is_withdrawn:
        return dispatch.withdraw(view, reason=reason)
    if view.left_copies:
        return []
    released = [*orphaned] or _release(ended, view)
    return dispatch.copy_to_job(view) + released if released else []


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


def _refuse(job: Manifest, problems: list[Problem], *, now: str) -> list[Command]:
    message = "; ".join(problem.message for problem in problems)
    return _report(job, Finding(api_names.ACCEPTED_CONDITION, False, problems[0].reason, message), now=now)


def _report(job: Manifest, finding: Finding, *, now: str) -> list[Command]:
    """Show a reason on the job, as a condition and an Event; nothing when it is shown already."""
    status = KINDS[job["kind"]].refusal.status(job, finding, now=now)
    if all(job.get("status", {}).get(name) == value for name, value in status.items()):
        return []
    return [
        Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body={"status": status}, subresource="status"),
        Emit(regarding=job, reason=finding.reason, note=finding.message, warning=True),
    ]
