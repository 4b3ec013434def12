"""Evicts a job, or takes its scale-up back, when pods with quota are not ready in time, as Kueue's WaitForPodsReady.

A job whose pods do not start is evicted, and goes to a cluster where that has not happened. Of a scale-up only the new
pods may be taken back: the worker's job gets the size again at which its pods were ready last. Ray's autoscaler owns
the size of its cluster, and itself gives up pods that do not start. An upgrade has no limit: a RayService serves from
its present cluster until the next one is ready, and no size takes that one back.

Time counts only while this manager runs and the cluster is connected: what is not reported may have happened.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from slicebus.decisions.commands import Command, Emit, Patch, Requeue
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.admission import admission_writes
from slicebus.manager.decide.manifests import annotation_patch
from slicebus.manager.decide.order import size_requests
from slicebus.manager.state import reclaims
from slicebus.manager.state.annotations import SizeRequest
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, Manifest, counts_text
from slicebus.slices.admission.cycle import Evict
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import WAIT_FOR_RECOVERY, Condition, EvictionReason
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload import avoided_clusters
from slicebus.slices.workload.workload import Slice

_MARGIN_S = 1.0
"""Times in conditions are whole seconds."""


class Deadline(msgspec.Struct, frozen=True):
    """Until when the pods of a slice have to be ready."""

    at: datetime | None
    """None while the cluster is not connected."""
    limit_s: float
    back_to: Counts | None = None
    """The size that a scale-up is taken back to; None where the job is evicted."""


def reconcile(view: JobView, job: Manifest, *, now: str) -> list[Command]:
    """The next step for a job whose pods are not ready in time, or that may go to a cluster again; one write a pass."""
    moment = datetime.fromisoformat(now)
    if tried_again := _tried_again(view, moment):
        return tried_again
    holder, deadline = view.holder, _deadline(view)
    if holder is not None and holder.condition(Condition.PODS_READY):
        workload = view.workload(holder)
        return [_note(workload, {})] if avoided_clusters.read(workload) else []
    if holder is None or deadline is None or deadline.at is None or moment < deadline.at:
        return []
    if deadline.back_to is not None:
        return _take_back(view, job, holder, deadline, back_to=deadline.back_to, now=now)
    workload, cluster = view.workload(holder), view.place or ""
    if cluster not in avoided_clusters.avoided_now(workload):
        avoided = avoided_clusters.avoid(avoided_clusters.read(workload), cluster, now=moment)
        return [_note(workload, avoided)]
    message = f"Exceeded the PodsReady timeout {holder.key}"
    evict = Evict(key=holder.key, reason=EvictionReason.PODS_READY_TIMEOUT, message=message)
    return admission_writes.commands(view, holder, evict, now=now)


def requeue_after(view: JobView, *, now: str) -> list[Command]:
    """Reconcile the job when its time is over, or a cluster may be tried again."""
    moment, deadline = datetime.fromisoformat(now), _deadline(view)
    waits = [_next_over_s(view, moment), _left_s(view, deadline, moment)]
    due = [delay_s for delay_s in waits if delay_s is not None]
    return [Requeue(job=view.ref, delay_s=min(due) + _MARGIN_S)] if due else []


def _deadline(view: JobView) -> Deadline | None:
    holder, timeouts = view.holder, view.readiness
    condition = holder.conditions.get(Condition.PODS_READY, {}) if holder else {}
    if holder is None or timeouts is None or condition.get("status") == "True":
        return None
    wanted = view.desired.counts if view.job is not None else {}
    if any(map(KINDS[view.ref.kind].is_upgrade, (holder.granted, wanted))):
        return None
    is_lost, before = condition.get("reason") == WAIT_FOR_RECOVERY, _before_scale_up(view, holder)
    if is_lost:
        began, limit_s = condition["lastTransitionTime"], timeouts.recovery_s
    elif before is not None and timeouts.scale_up_s is not None:
        is_given_up = view.is_autoscaled or not _wants_more_than(before, view)
        began, limit_s = _admitted_at(holder), None if is_given_up else timeouts.scale_up_s
    else:
        began, limit_s = _admitted_at(holder), timeouts.start_s
    if limit_s is None:
        return None
    taken = view.desired.taken_back if view.job is not None else None
    back_to = None if is_lost or timeouts.scale_up_s is None else before
    if timeouts.connected_since is None:
        return Deadline(None, limit_s, back_to)
    since = max(began, timeouts.counts_from, timeouts.connected_since, taken.at if taken else "")
    return Deadline(datetime.fromisoformat(since) + timedelta(seconds=limit_s), limit_s, back_to)


def _admitted_at(holder: Slice) -> str:
    at: str = holder.conditions[Condition.QUOTA_RESERVED]["lastTransitionTime"]
    return at


def _before_scale_up(view: JobView, holder: Slice) -> Counts | None:
    """The size at which the job's pods were ready last, since it was started; None where they never were, or where the
    slice has no more pods."""
    ready = next((slice for slice in _replaced(view, holder) if slice.condition(Condition.PODS_READY)), None)
    if ready is None or ready.admission is None:
        return None
    ran = ready.admission.within(ready.unfinished_counts).counts
    left = {name: min(count, ran.get(name, 0)) for name, count in holder.granted.items()}
    return left if left != holder.granted else None


def _replaced(view: JobView, slice: Slice) -> Iterator[Slice]:
    """The slices before one in its chain, the newest first, up to the one with which the job was started."""
    chain = {slice.key: slice for slice in view.slices}
    while Condition.EVICTED not in slice.conditions and slice.replaces in chain:
        slice = chain.pop(slice.replaces)
        yield slice


def _wants_more_than(counts: Counts, view: JobView) -> bool:
    return any(count > counts.get(name, 0) for name, count in view.desired.counts.items())


def _take_back(
    view: JobView, job: Manifest, holder: Slice, deadline: Deadline, *, back_to: Counts, now: str
) -> list[Command]:
    """Overrule the request for the scale-up by the size before it. The worker carries that out as any smaller size that
    is set at the manager, and its quota is given back when the worker has."""
    message = (
        f"Pods of the scale-up to {counts_text(holder.granted)} were not ready after {deadline.limit_s:g} s: "
        f"the size is {counts_text(back_to)} again"
    )
    requested = view.desired.requested or SizeRequest.nothing()
    taken = reclaims.taken_back(job, view.desired, requested, back_to, at=now, message=message)
    overruled = msgspec.structs.replace(requested, baseline=view.desired.own, taken_back=taken)
    return [
        *size_requests.record(view, overruled),
        Emit(regarding=job, reason="ScaleUpTakenBack", note=message, warning=True),
    ]


def _tried_again(view: JobView, moment: datetime) -> list[Command]:
    commands: list[Command] = []
    for workload in _waiting(view):
        avoided = avoided_clusters.read(workload)
        if (left := avoided_clusters.end_expired(avoided, now=moment)) != avoided:
            commands.append(_note(workload, left))
    return commands


def _next_over_s(view: JobView, moment: datetime) -> float | None:
    times = (avoided_clusters.next_expiry_s(avoided_clusters.read(workload), now=moment) for workload in _waiting(view))
    return min((delay_s for delay_s in times if delay_s is not None), default=None)


def _left_s(view: JobView, deadline: Deadline | None, moment: datetime) -> float | None:
    if deadline is None:
        return None
    return deadline.limit_s if deadline.at is None else max(0.0, (deadline.at - moment).total_seconds())


def _waiting(view: JobView) -> list[Manifest]:
    return [view.workload(slice) for slice in view.unfinished if slice.avoids and slice.lacks_quota]


def _note(workload: Manifest, avoided: avoided_clusters.Clusters) -> Command:
    body = annotation_patch(api_names.AVOIDED_CLUSTERS_ANNOTATION, avoided_clusters.to_annotation(avoided))
    return Patch(resource=WORKLOADS, target=workload, body=body)
