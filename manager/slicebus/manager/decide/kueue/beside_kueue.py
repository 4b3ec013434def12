"""Reconciles one job where a Kueue on the manager's cluster admits.

Kueue makes the slices, gives them quota and starts the manager's job; slicebus answers its AdmissionCheck. A slice with
quota is dispatched with the counts that the chain may run before its admission: none for a first slice, those of the
replaced slice for a replacement. When the worker has applied it, the check is Ready. When Kueue has admitted it, all of
its pods may run. Where the worker already holds the job as a replacement may run until its admission, the replacement
is not dispatched before, and its check is Ready at once (docs/decisions/0055).

The counts that a worker asks for go into the job's own spec, where Kueue reads them. A job that loses its quota leaves
the worker before the manager's job shows that it is not active. Each pass writes an object at most once, and what
depends on a write waits for the next pass.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from slicebus.decisions.commands import Command, Emit, Patch, Requeue
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.job import edits, endings, left_out, size_bounds, unknown_ends, unshown_ends, waiting
from slicebus.manager.decide.kueue import kueue_checks, kueue_counts, kueue_status
from slicebus.manager.decide.manifests import (
    annotation_patch,
    finalizer_patch,
    has_finalizer,
    with_annotations,
    write_status,
)
from slicebus.manager.decide.order import dispatch, holding, record_copies, size_requests
from slicebus.manager.state.annotations import DesiredSize, annotation
from slicebus.manager.state.outbox import HOLDING, Dispatch
from slicebus.manager.state.requirements import missing
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import ClusterName, Counts, Manifest
from slicebus.slices.admission.cycle import Evict
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import spec_hash
from slicebus.slices.api.kueue import CheckState, Condition, EvictionReason
from slicebus.slices.api.selectors import parse_selector
from slicebus.slices.jobs import KINDS, Problem
from slicebus.slices.jobs.suspension import is_suspended
from slicebus.slices.placement.fleet import Fleet, Strategy, Tenant
from slicebus.slices.schedulers import chosen_by
from slicebus.slices.workload import avoided_clusters
from slicebus.slices.workload.workload import Slice

NOWHERE = ""
"""The value of the cluster annotation of a chain that is not placed."""
NOT_MANAGED = "slicebus does not run it: {}"
_NOT_ELASTIC = Problem(
    "NotElastic", "Its Workload cannot be replaced: Kueue needs the feature gate ElasticJobsViaWorkloadSlices"
)
_PLACE_AGAIN_S = 10.0
_NOWHERE_AT_ALL: Manifest = {"matchExpressions": [{"key": "", "operator": "Exists"}]}
"""A selector that no cluster has the label for."""
_USUALLY_APPLIED_S = 2.0
"""A check says that it waits for the worker only after that time."""


class Places(msgspec.Struct, frozen=True):
    """Where a chain may be placed, and by which strategy."""

    clusters: frozenset[str]
    """Every WorkerCluster."""
    fleet: Fleet
    strategy: Strategy
    namespace_labels: Mapping[str, str] = {}
    """Those of the job's namespace."""


def reconcile(view: JobView, places: Places, now: str) -> list[Command]:
    """The commands for everything that a job needs now."""
    return dispatch.recall(view) + _decide(view, places, now)


def ask_to_evict(view: JobView, slice: Slice, decision: Evict, *, now: str) -> list[Command]:
    """The command that asks Kueue to evict a chain that has to leave its cluster."""
    entry = kueue_checks.entry_of(view.workload(slice), view.checks)
    if slice != view.holder or entry is None or not _may_retry(slice, entry):
        return []
    return kueue_checks.answer(view.workload(slice), view.checks, CheckState.RETRY, decision.message, now=now)


def _may_retry(slice: Slice, entry: Manifest) -> bool:
    """Whether Kueue may be asked to evict a slice. A replacement must have started: then it is the whole job.

    Before that nothing runs on it yet, and the replaced slice has ended with its quota.
    """
    if entry["state"] in (CheckState.RETRY, CheckState.REJECTED):
        return False
    return not slice.replaces or (entry["state"] == CheckState.READY and slice.condition(Condition.ADMITTED))


def _decide(view: JobView, places: Places, now: str) -> list[Command]:
    job = view.job
    if job is None or "deletionTimestamp" in job["metadata"]:
        return end(view, reason="JobDeleted", ended=view.slices)
    lacks = "; ".join(missing(job, fixed_jobs=False))
    if lacks and view.outbox is None:
        return _reject(view, NOT_MANAGED.format(lacks), now)
    if view.outcome.phase.is_terminal:
        return unshown_ends.finish(view, now=now) or end(view, reason="JobFinished", ended=view.slices)
    if any(slice.deleting for slice in view.unfinished):
        return endings.await_written_end(view, now=now) or _stop(view, job, view.evicted, now=now)
    if dispatch.has_unknown_end(view) and (stopping := unknown_ends.stop(view, now=now)):
        return stopping
    if (deletion := endings.reconcile_vanished(view)) is not None:
        return deletion
    holder = view.holder
    if holder is None:
        return _stop(view, job, view.evicted, now=now) or unknown_ends.close(view)
    if dispatch.has_unknown_end(view):
        return dispatch.withdraw(view, reason=unknown_ends.VANISHED)
    if kueue_status.is_stopping(job) and view.outbox is not None:
        return _stop(view, job, holder, now=now)
    entry = kueue_checks.entry_of(view.workload(holder), view.checks)
    if entry is None and view.outbox is None:
        return []
    # Edits of its metadata let no job keep its pods past an eviction, nor its copy past its end.
    if lacks and (rejected := _reject(view, NOT_MANAGED.format(lacks), now)):
        return rejected
    return _run(view, job, holder, entry, places, now)


def _reject(view: JobView, message: str, now: str) -> list[Command]:
    """Reject a job that cannot run, with its first slice: others get the quota until somebody mends the job."""
    holder = view.holder
    entry = kueue_checks.entry_of(view.workload(holder), view.checks) if holder else None
    if holder is None or entry is None or holder.replaces or entry["state"] != CheckState.PENDING:
        return []
    return kueue_checks.answer(view.workload(holder), view.checks, CheckState.REJECTED, message, now=now)


def allowed(view: JobView, job: Manifest, slice: Slice) -> Slice:
    """A slice with quota, reduced to the pods that may run now: none while Kueue keeps the job suspended. `job` has the
    status of that moment."""
    if slice.condition(Condition.ADMITTED) and kueue_status.shows_running(job):
        return slice
    assert slice.admission is not None
    granted_before = {} if is_suspended(job) else _granted_before(view, slice)
    counts = {name: min(count, granted_before.get(name, 0)) for name, count in slice.granted.items()}
    pod_sets = tuple(
        msgspec.structs.replace(assignment, count=counts[assignment.name]) for assignment in slice.admission.pod_sets
    )
    return msgspec.structs.replace(slice, admission=msgspec.structs.replace(slice.admission, pod_sets=pod_sets))


def _granted_before(view: JobView, slice: Slice) -> Counts:
    """The counts that the chain was granted before this slice."""
    older = view.slices[: view.slices.index(slice)]
    last = next((old for old in reversed(older) if old.admission and old.condition(Condition.ADMITTED)), None)
    if slice.replaces is None or last is None or last.admission is None:
        return {}
    wanted = last.unfinished_counts
    return {name: min(count, wanted.get(name, 0)) for name, count in last.admission.counts.items()}


def _run(
    view: JobView, job: Manifest, holder: Slice, entry: Manifest | None, places: Places, now: str
) -> list[Command]:
    """Dispatch the slice, pass the worker's request to Kueue, and answer the check by the worker's report."""
    state, tried = entry["state"] if entry else CheckState.READY, kueue_counts.forget_refusal(view)
    if state in (CheckState.RETRY, CheckState.REJECTED):
        return []
    if state == CheckState.PENDING and not holder.replaces and (problems := _problems(job, view.desired, holder)):
        message = "; ".join(problem.message for problem in problems)
        event = Emit(regarding=job, reason=problems[0].reason, note=message, warning=True)
        return [*_reject(view, message, now), event]
    if view.place and view.place not in places.clusters and entry is not None and _may_retry(holder, entry):
        message = f"Worker cluster {view.place} is no longer in the fleet"
        return _set_check(view, holder, entry, CheckState.RETRY, message, now)
    after = job | {"status": kueue_status.status_of(view, now=now, may_have_pods=False)}
    starts = kueue_status.shows_running(after) and not kueue_status.shows_running(job)
    # Last, as the API server may refuse it. While it does, it is tried with the worker's message.
    request = [] if starts or waiting.is_request_refused(view) else kueue_counts.write_request(view, job, holder)
    shown = [] if request else write_status(job, after["status"], only_shows=not starts)
    if _stands(view, job, holder, places):
        return [*shown, *_ready(view, holder, entry, now), *request]
    if not holder.cluster:
        return _place(view, job, holder, entry, places, now)
    if restarted := unknown_ends.restarted(view, now=now) or size_requests.carry(view):
        return restarted
    if holder.avoids and holder.condition(Condition.PODS_READY):
        body = annotation_patch(api_names.AVOIDED_CLUSTERS_ANNOTATION, None)
        return [Patch(resource=WORKLOADS, target=view.workload(holder), body=body)]
    # A job that this status ends shows no more that it runs, and keeps the counts that it had.
    shown_job = after if starts else job
    held = holding.hold(view, allowed(view, shown_job, holder), now=now)
    answered = held or answer(view, holder, entry, now)
    return [*tried, *shown, *answered, *_release(view, [s for s in view.slices if s.finished]), *request]


def _stands(view: JobView, job: Manifest, holder: Slice, places: Places) -> bool:
    """Whether the worker holds what a replacement may run until its admission, by the order for an earlier slice."""
    outbox, place = view.outbox, view.place
    if outbox is None or place is None or view.state != HOLDING or not places.fleet.is_connected(place):
        return False
    if not holder.replaces or holder.cluster or holder.condition(Condition.ADMITTED):
        return False
    held = next((slice for slice in view.slices if view.workload(slice) is outbox.recorded_on), None)
    if held is None:
        return False
    counts, sizes = allowed(view, job, holder).granted, (view.desired.sent, held.counts)
    return any(outbox.record.hash == spec_hash(place, held.name, counts, size) for size in sizes)


def _set_check(
    view: JobView, slice: Slice, entry: Manifest | None, state: CheckState, message: str, now: str
) -> list[Command]:
    return kueue_checks.answer(view.workload(slice), view.checks, state, message, now=now) if entry else []


def _problems(job: Manifest, desired: DesiredSize, slice: Slice) -> list[Problem]:
    problems = KINDS[job["kind"]].problems(dispatch.as_wanted(job, desired))
    rigid = [] if slice.elastic else [_NOT_ELASTIC]
    return [*problems, *edits.selector_problems(job), *size_bounds.problems(job), *rigid]


def _selector(job: Manifest) -> Manifest:
    """The selector of clusters. Raises ValueError."""
    return parse_selector(annotation(job, api_names.CLUSTER_SELECTOR_ANNOTATION) or "")


def _selector_of(job: Manifest) -> Manifest:
    """The same; that of no cluster where the annotation is none. What runs stays where it is."""
    try:
        return _selector(job)
    except ValueError:
        return _NOWHERE_AT_ALL


def _place(
    view: JobView, job: Manifest, holder: Slice, entry: Manifest | None, places: Places, now: str
) -> list[Command]:
    """Choose the cluster of the chain, and write it onto its slice."""
    needs = holder.usage
    tenant = Tenant(
        selector=_selector_of(job),
        namespace=view.ref.namespace,
        namespace_labels=places.namespace_labels,
        cluster_queue=holder.admission.cluster_queue if holder.admission else "",
        scheduler=chosen_by(job),
    )
    candidates = places.fleet.candidates(places.strategy, needs, tenant=tenant)
    with_room = [name for name in candidates if not places.fleet.short(name, needs)]
    ranked = [name for name in with_room if name not in holder.avoids] or with_room
    # A suspended job resumes on the cluster that has its copy, if that has room.
    chosen = view.place or (view.cluster if view.cluster in ranked else next(iter(ranked), None))
    if chosen is None:
        message = f"Waits for a worker cluster: {places.fleet.why_not([needs], tenant=tenant)}"
        event = _set_check(view, holder, entry, CheckState.PENDING, message, now)
        return [*event, Requeue(job=view.ref, delay_s=_PLACE_AGAIN_S)]
    told = left_out.tell(job) if view.cluster is None else []
    return [*_with_order(view, job, holder, _set_cluster(view, holder, chosen), ClusterName(chosen), now), *told]


def _with_order(
    view: JobView, job: Manifest, holder: Slice, placed: Patch, cluster: ClusterName, now: str
) -> list[Command]:
    """The write of a slice's place, with the order that follows where that is the next write."""
    if view.cluster not in (None, cluster):
        return [placed]
    after = view.with_workload(with_annotations(view.workload(holder), placed))
    after = msgspec.structs.replace(after, cluster=cluster, in_fleet=True)
    slice = after.slices[view.slices.index(holder)]
    match placed.body, holding.hold(after, allowed(after, job, slice), now=now):
        case {"metadata": metadata}, [Patch(body={"metadata": {"annotations": order}}) as write, *published] if (
            write.target is after.workload(slice)
        ):
            body = {"metadata": metadata | {"annotations": metadata["annotations"] | order}}
            return [msgspec.structs.replace(placed, body=body), *published]
    return [placed]


def _is_kept(view: JobView, slice: Slice) -> bool:
    return has_finalizer(view.workload(slice), api_names.DISPATCHED_FINALIZER)


def _set_cluster(view: JobView, slice: Slice, cluster: str) -> Patch:
    """Place a slice, and keep it by a finalizer until the worker holds nothing of it."""
    workload = view.workload(slice)
    finalizers = [*workload["metadata"].get("finalizers", ())]
    kept = finalizers if _is_kept(view, slice) else [*finalizers, api_names.DISPATCHED_FINALIZER]
    noted = {} if slice.name in view.requests else size_requests.annotations(view)
    metadata = {"annotations": {api_names.CLUSTER_ANNOTATION: cluster} | noted, "finalizers": kept}
    return Patch(resource=WORKLOADS, target=workload, body={"metadata": metadata})


def answer(view: JobView, holder: Slice, entry: Manifest | None, now: str) -> list[Command]:
    """Answer the check by what the worker has applied. It never goes back from Ready to Pending."""
    workload, outbox = view.workload(holder), view.outbox
    if entry is None or entry["state"] == CheckState.READY or outbox is None:
        return []
    if outbox.recorded_on is workload and view.state == HOLDING:
        return _ready(view, holder, entry, now)
    refusal = holder.conditions.get(api_names.DISPATCHED_CONDITION, {})
    message = refusal.get("message", "") or f"Waits for worker cluster {view.cluster} to apply it"
    waits_s = (datetime.fromisoformat(now) - datetime.fromisoformat(entry["lastTransitionTime"])).total_seconds()
    if not refusal and not entry.get("message") and waits_s < _USUALLY_APPLIED_S:
        return [Requeue(job=view.ref, delay_s=_USUALLY_APPLIED_S - max(waits_s, 0.0))]
    return _set_check(view, holder, entry, CheckState.PENDING, message, now)


def _ready(view: JobView, holder: Slice, entry: Manifest | None, now: str) -> list[Command]:
    if entry is None or entry["state"] == CheckState.READY:
        return []
    return _set_check(view, holder, entry, CheckState.READY, f"Worker cluster {view.place} holds it", now)


def _stop(view: JobView, job: Manifest, slice: Slice | None, *, now: str) -> list[Command]:
    """Suspend on the worker, then reset the counts to those of the job's user, then show the job as not active. Without
    a slice that it leaves for, the job is withdrawn."""
    if slice is not None and not view.is_without_pods and not _is_kept(view, slice):
        return [_set_cluster(view, slice, view.place or view.cluster or NOWHERE)]
    if view.given_up and (abandoned := dispatch.abandon(view)):
        return abandoned
    lets_go = dispatch.suspend(view, slice) if slice else dispatch.withdraw(view, reason="WorkloadDeleted")
    if not view.is_without_pods:
        return [*kueue_status.mirror(view, now=now, may_have_pods=True), *lets_go]
    if reset := kueue_counts.restore(view, job, now=now):
        return reset
    placed = [slice for slice in view.slices if slice.cluster and not slice.finished and not slice.deleting]
    if placed:
        return [_leave_cluster(view, slice, now=now) for slice in placed]
    released = _release(view, [slice for slice in view.slices if slice.finished or slice.deleting])
    if released and (remembered := record_copies.copies(view)):
        return [*remembered, *released]
    return [*kueue_status.mirror(view, now=now, may_have_pods=False), *lets_go, *released]


def _leave_cluster(view: JobView, slice: Slice, *, now: str) -> Command:
    """Place a slice nowhere. Where Kueue evicted it because its pods did not get ready, other clusters come first from
    then on."""
    workload, evicted = view.workload(slice), slice.conditions.get(Condition.EVICTED, {})
    left: Manifest = {api_names.CLUSTER_ANNOTATION: NOWHERE}
    if slice.evicted and slice.cluster and evicted.get("reason") == EvictionReason.PODS_READY_TIMEOUT:
        known, moment = avoided_clusters.read(workload), datetime.fromisoformat(now)
        avoided = avoided_clusters.avoid(known, slice.cluster, now=moment)
        left[api_names.AVOIDED_CLUSTERS_ANNOTATION] = avoided_clusters.to_annotation(avoided)
    return Patch(resource=WORKLOADS, target=workload, body={"metadata": {"annotations": left}})


def end(view: JobView, *, reason: str, ended: Sequence[Slice]) -> list[Command]:
    """Delete the worker's copy first, then release the Workloads."""
    if not view.is_withdrawn:
        return dispatch.withdraw(view, reason=reason)
    released = _release(view, ended)
    return record_copies.copies(view) + released if released else []


def _release(view: JobView, slices: Sequence[Slice]) -> list[Command]:
    """Remove the finalizer of these slices. The newest dispatch is kept until the worker holds nothing.

    So is a dispatch that names a lost cluster, until that has no copy left either.
    """
    outbox, is_over = view.outbox, view.is_withdrawn
    workloads = [view.workload(slice) for slice in slices]
    return [
        Patch(resource=WORKLOADS, target=workload, body=finalizer_patch(workload, api_names.DISPATCHED_FINALIZER))
        for workload in workloads
        if has_finalizer(workload, api_names.DISPATCHED_FINALIZER)
        and (is_over or outbox is None or outbox.recorded_on is not workload)
        and (is_over or view.keeper is None or view.workload(view.keeper) is not workload)
        and not (view.left_copies and (record := Dispatch.from_manifest(workload)) and record.left_copies)
    ]
