"""The steps of each order of the manager.

An order is a list of steps; each step decides by the view at the time it runs. An order that comes late, twice or out
of order changes nothing that a newer one has set: the version decides. A step raises ConflictError while it has to wait
for an object that is being deleted.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from slicebus.agent.decide.job import earlier_words, gangs, waiting
from slicebus.agent.decide.job.reconcile import link_copies
from slicebus.agent.decide.job.room import patch_job
from slicebus.agent.decide.order import notices, order_sizes, scheduling, slice_copies
from slicebus.agent.decide.order.order_contents import ensure_named, ensure_pods_readable
from slicebus.agent.decide.order.policy import creator, ensure_allowed, ensure_namespace
from slicebus.agent.decide.order.refusals import KindNotServed, RefusedOrder
from slicebus.agent.decide.pods.pod_placement import places
from slicebus.agent.state import annotations
from slicebus.agent.state.views import WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Create, Patch, Publish, Remove
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.proto.errors import ConflictError, DeadReason, ProtocolError
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    Counts,
    Delete,
    JobOrder,
    JobRef,
    Manifest,
    Pending,
    Relabel,
    Suspend,
    WorkloadSpec,
)
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.suspension import can_suspend, to_resume
from slicebus.slices.workload.pod_scheduling import PodScheduling

_UNCHANGED: Manifest = {}


class OrderStep(NamedTuple):
    """One step of an order."""

    decide: Callable[[WorkerView], Sequence[Command]]
    """A pure function of the view."""
    is_seen: bool = True
    """Whether later steps read what it changes. If not, they are decided together with it."""


class NextStep(NamedTuple):
    """The next commands of an order."""

    then: int | None
    """The number of the step after these commands; None when none is left."""
    commands: Sequence[Command]


def steps(order: JobOrder, cluster: ClusterName, *, now: str = "") -> list[OrderStep]:
    """The steps of an order. `now` is RFC 3339; the notice of a job begins then."""
    match order:
        case WorkloadSpec():
            return workload_spec(order, cluster, now=now)
        case Relabel():
            return relabel(order, cluster)
        case Suspend():
            return suspend(order, now=now)
        case Delete():
            return delete(order)
        case Pending():
            return pending(order)


def next_step(steps: Sequence[OrderStep], number: int, view: WorkerView) -> NextStep:
    """The first step with commands, from this number on. Raises what a step up to that one raises."""
    for next_number, step in enumerate(steps[number:], start=number + 1):
        if commands := step.decide(view):
            if step.is_seen:
                return NextStep(next_number if next_number < len(steps) else None, commands)
            beside = next_step(steps, next_number, view)
            return NextStep(beside.then, [*commands, *beside.commands])
    return NextStep(None, [])


def workload_spec(order: WorkloadSpec, cluster: ClusterName, *, now: str = "") -> list[OrderStep]:
    """Creates the job and the copy of its slice, or changes them in place.

    A new job comes first, so that its copy is written once, with the link to it. A job that is there follows its copy,
    but where a relabel moves it to the slice: its copy says that the whole spec is carried out, for the relabel to
    report. Reports when the copy is linked to the job: from then on a deletion of the job is noticed. Where the relabel
    came first, the copies of earlier slices go only now.
    """
    return [
        OrderStep(lambda view: _ensure_possible(view, order)),
        OrderStep(lambda view: _upsert_copy(view, order) if _stays_on_slice(view, order) else []),
        OrderStep(lambda view: _take_sizes(view, order)),
        OrderStep(lambda view: _take_over(view, order)),
        OrderStep(lambda view: _upsert_job(view, order, now=now)),
        OrderStep(lambda view: _upsert_copy(view, order)),
        OrderStep(
            lambda view: [
                *link_copies(view),
                *_drop_old_copies(view, order.job),
                *report(view, order.job, cluster, since=order.spec_version),
            ]
        ),
    ]


def relabel(order: Relabel, cluster: ClusterName) -> list[OrderStep]:
    """Moves the job to its next slice, and removes the copies of earlier slices. Nothing is reported before the spec of
    that version has brought the size that was set at the manager, and after it the copy: the spec reports then."""
    return [
        OrderStep(lambda view: _move(view, order)),
        OrderStep(lambda view: [*link_copies(view), *_drop_old_copies(view, order.job)], is_seen=False),
        OrderStep(lambda view: [] if _lacks_spec(view, order) else report(view, order.job, cluster)),
    ]


def suspend(order: Suspend, *, now: str = "") -> list[OrderStep]:
    """Takes the job's grant and with it its pods away, now or when its notice is over. `reconcile.confirm_suspended`
    answers when no pod is left."""
    return [
        OrderStep(lambda view: _suspend(view, order, now=now)),
        OrderStep(lambda view: _drop_old_copies(view, order.job)),
    ]


def delete(order: Delete) -> list[OrderStep]:
    """Removes the job and its copies. The tombstone is stored before; the report follows the last pod."""
    return [OrderStep(lambda view: removes(view, order.job, up_to=order.spec_version))]


def pending(notice: Pending) -> list[OrderStep]:
    """Shows why a request waits, on the job and on the RayCluster that a RayJob made."""
    return [OrderStep(lambda view: waiting.take(view, notice))]


def removes(view: WorkerView, job: JobRef, *, up_to: int) -> list[Remove]:
    """Removes the objects that were made for this job of the manager, up to that version. A job that stays for a
    finalizer of somebody else goes after its pods: nobody else deletes them."""
    objects = [(JOB_RESOURCES[view.key.kind], view.job)] if view.job is not None else []
    objects += [(WORKLOADS, copy) for copy in view.copies]
    return [
        Remove(resource=resource, target=target, foreground=annotations.is_kept_by_others(target))
        for resource, target in objects
        if annotations.is_of(target, job) and annotations.spec_version(target) <= up_to
    ]


def report(view: WorkerView, job: JobRef, cluster: ClusterName, *, since: int = 0) -> list[Command]:
    """Reports the version that the worker's job has, whatever order led there; nothing while it is older than `since`.

    A spec for the next slice changes the job only with the relabel, which reports then. A suspended job is not reported
    here: it may have pods left.
    """
    present = view.reading if view.reading is not None and view.reading.is_of(job) else None
    if present is not None and present.is_suspended:
        return []
    workload, version = (present.slice, present.version) if present is not None else ("", 0)
    applied = Applied(job=job, workload=workload, spec_version=version)
    return [Publish(cluster=cluster, message=applied)] if version >= since else []


def report_deleted(job: JobRef, version: int, cluster: ClusterName) -> Publish:
    """Reports that nothing is left of a job that was ended at this version."""
    return Publish(cluster=cluster, message=Applied(job=job, workload="", spec_version=version, deleted=True))


def _own_job(view: WorkerView, job: JobRef) -> WorkerJobReading | None:
    """The worker's job of a manager's job, or None. Raises RefusedOrder where a foreign job has the name, ConflictError
    where an earlier job is being deleted."""
    if view.job is None:
        return None
    if view.reading is None:
        raise RefusedOrder("JobExists", f"{view.key} is there already and was not made by slicebus: it is left alone")
    if not view.reading.is_of(job) or view.reading.is_going:
        raise ConflictError(f"an earlier {view.key} is still there")
    return view.reading


def _is_stale(view: WorkerView, order: WorkloadSpec) -> bool:
    """Whether a newer version is there: on the job, or on the copy of a slice that the job has yet to move to."""
    present = (*([view.job] if view.job else []), *view.copies)
    return any(annotations.spec_version(m) > order.spec_version for m in present if annotations.is_of(m, order.job))


def _ensure_possible(view: WorkerView, order: WorkloadSpec) -> list[Command]:
    """Raises RefusedOrder for an order that cannot be carried out here, and ConflictError for one that has to wait.
    Returns no commands."""
    ensure_named(order)
    ensure_namespace(view.policy, view.key.namespace)
    if view.unserved:
        kind, reason = next(iter(view.unserved.items()))
        raise KindNotServed(kind, reason)
    if _own_job(view, order.job) is not None or _is_stale(view, order):
        return []
    if any(annotations.is_of(copy, order.job) and annotations.is_linked(copy) for copy in view.copies):
        raise ConflictError(f"somebody has deleted {view.key} here, and the manager is to hear of that first")
    ensure_pods_readable(order)
    scheduling.ensure_usable(view, order)
    ensure_allowed(view.policy, _new_job(order), namespace_labels=view.namespace_labels)
    return []


def _stays_on_slice(view: WorkerView, order: WorkloadSpec) -> bool:
    """Whether no relabel comes with the order, or came before it: the job is on its slice with an older version."""
    job = view.reading
    is_on = job is not None and job.is_of(order.job) and job.slice == order.workload["metadata"]["name"]
    return is_on and job is not None and job.version < order.spec_version


def _upsert_copy(view: WorkerView, order: WorkloadSpec) -> list[Command]:
    """Write the copy of the slice, linked to the job. It gets no link where the job has gone since it was made: the
    report of that goes by the copy."""
    job = _own_job(view, order.job)
    if _is_stale(view, order):
        return []
    present = view.copy_of(order.workload["metadata"]["name"])
    if present is not None and annotations.spec_version(present) >= order.spec_version:
        return []
    manifest = slice_copies.manifest(view, order, job)
    if present is None:
        return [Create(resource=WORKLOADS, manifest=manifest)]
    body = {"metadata": {"annotations": manifest["metadata"]["annotations"]}, "spec": manifest["spec"]}
    return [Patch(resource=WORKLOADS, target=present, body=body)]


def _take_sizes(view: WorkerView, order: WorkloadSpec) -> list[Command]:
    job = _own_job(view, order.job)
    return [] if job is None or _is_stale(view, order) else order_sizes.take(view, order, job)


def _take_over(view: WorkerView, order: WorkloadSpec) -> list[Command]:
    job = _own_job(view, order.job)
    return [] if job is None or _is_stale(view, order) else order_sizes.take_over(view, order, job)


def _upsert_job(view: WorkerView, order: WorkloadSpec, *, now: str) -> list[Command]:
    job, name = _own_job(view, order.job), order.workload["metadata"]["name"]
    if _is_stale(view, order):
        return []
    resource, noted = JOB_RESOURCES[view.key.kind], order_sizes.note(order, job)
    if job is None:
        if order.job.uid in view.running:
            raise ConflictError(f"pods of an earlier {view.key} still run")
        left = annotations.left_behind(view.left_requests.get(order.job.uid), order.answers)
        at = _stamp(order, left, workload=name)
        backend = scheduling.ensure_usable(view, order)
        at["annotations"] |= noted | annotations.request_note(None, left) | scheduling.note(backend)
        copy = _new_job(order, scheduling=lambda pod_set: backend.prepare(order.manifest, pod_set))
        manifest, impersonate = _with_metadata(copy, at), creator(view.policy, view.key.namespace)
        return [Create(resource=resource, manifest=manifest, impersonate=impersonate)]
    order_sizes.ensure_taken(view, order, job)
    counts = order_sizes.counts_of(order)
    is_resized = order_sizes.sets_another(order, job)
    told, events = notices.of_spec(view, order, job, now=now)
    fields, resized = order_sizes.with_note(view, order, job)
    noted |= told
    if is_resized and order.waits_for and job.runs:
        noted |= waiting.note_taken_back(counts, wanted=order.waits_for, message=order.resized_because or "", now=now)
    events = [*events, *resized]
    if job.slice == name and job.version < order.spec_version:
        # A manager that took its eviction back has heard of no suspension: it still knows the request from before.
        left = annotations.left_behind(job.requested, order.answers) if job.is_suspended else job.requested
        at = _stamp(order, left, workload=name, before=job.granted, own=counts if is_resized else None)
        at["annotations"] |= noted | annotations.request_note(job.requested, left)
        return [*_stamped(view, job, at, fields), *events]
    if is_resized or told or order_sizes.sets_other_bounds(order, job):
        requested = job.requested.beside(counts) if job.requested is not None and is_resized else job.requested
        changed = noted | annotations.request_note(job.requested, requested)
        return [*patch_job(job.manifest, {"metadata": {"annotations": changed}} | fields), *events]
    return []


def _new_job(
    order: WorkloadSpec, *, scheduling: Callable[[str], PodScheduling] = lambda _: PodScheduling()
) -> Manifest:
    """The job as it is created here, without what only an agent gives it. `scheduling` returns that of a pod set."""
    placements = {
        name: msgspec.structs.replace(place, scheduling=scheduling(name)) for name, place in places(order).items()
    }
    return KINDS[order.job.kind].worker_copy(order.manifest, placements)


def _stamp(
    order: WorkloadSpec | Relabel,
    requested: annotations.PendingRequests | None,
    *,
    workload: str,
    before: Counts | None = None,
    own: Counts | None = None,
) -> Manifest:
    """The metadata of a job after an order. Its grant is capped by every unanswered request.

    `before` is what the job was granted; `own` is the size of the manager's spec, where the order has changed it.
    """
    left = requested.answered(order.answers) if requested else None
    granted = left.allows(order.granted) if left else order.granted
    at = annotations.job_metadata(order.job, workload=workload, version=order.spec_version, grant=granted)
    if left is not None and own is not None:
        left = left.beside(own)
    elif requested is not None and requested.is_forgotten(before or {}, granted):
        left = requested.renewed(granted)
    at["annotations"] |= annotations.request_note(requested, left)
    return at


def _stamped(view: WorkerView, job: WorkerJobReading, at: Manifest, fields: Manifest = _UNCHANGED) -> list[Command]:
    """Writes metadata onto a job, and other fields of one that runs, which also resumes a suspended one. Raises
    ConflictError where that has to wait."""
    resumes = to_resume(job.manifest)
    if resumes:
        gangs.ensure_none_left(view)
    return patch_job(job.manifest, {"metadata": at} | fields | resumes)


def _with_metadata(manifest: Manifest, at: Manifest) -> Manifest:
    metadata = manifest["metadata"]
    merged = {name: metadata.get(name, {}) | at[name] for name in ("labels", "annotations")}
    return manifest | {"metadata": metadata | merged}


def _move(view: WorkerView, order: Relabel) -> list[Command]:
    """Moves the job, also before the copy of the new slice is there: spec and relabel may come in either order."""
    job = _own_job(view, order.job)
    if job is None or job.version >= order.spec_version:
        return []
    at = _stamp(order, job.requested, workload=order.to_workload, before=job.granted)
    if job.last_word is not None and earlier_words.frees(job, job.last_word, order.granted):
        # The manager grants more only when its word is over. The spec of this version says so too, maybe later.
        at["annotations"][api_names.FOLLOWS_ANNOTATION] = None
    return _stamped(view, job, at)


def _lacks_spec(view: WorkerView, order: Relabel) -> bool:
    """Whether the job has moved by this order, and the spec of that version has yet to bring the copy."""
    job = view.reading
    if job is None or not job.is_of(order.job) or job.version != order.spec_version:
        return False
    copy = view.copy_of(job.slice)
    return copy is None or annotations.spec_version(copy) < order.spec_version


def _drop_old_copies(view: WorkerView, job: JobRef) -> list[Command]:
    """Removes the copies of earlier slices. They stay until the copy of the present one is there: without any, nobody
    would notice that the job is deleted."""
    current = _own_job(view, job)
    if current is None or view.copy_of(current.slice) is None:
        return []
    return [
        Remove(resource=WORKLOADS, target=copy)
        for copy in view.copies
        if copy["metadata"]["name"] != current.slice and annotations.spec_version(copy) < current.version
    ]


def _suspend(view: WorkerView, order: Suspend, *, now: str) -> list[Command]:
    job = _own_job(view, order.job)
    if job is None or job.version >= order.spec_version:
        return []
    if not can_suspend(order.job.kind) and not order.deleted_after:
        # The manager has another declaration of the kind. It holds the quota until the job is deleted.
        raise ProtocolError(DeadReason.REFUSED, f"a {order.job.kind} cannot be suspended: compare its declarations")
    if notices.runs_for(job, order):
        return []
    if job.runs and order.notice is not msgspec.UNSET:
        return notices.of_suspension(view, order, job, order.notice, now=now)
    return notices.suspend(job, order.spec_version, order.workload, reason=order.reason, message=order.message)
