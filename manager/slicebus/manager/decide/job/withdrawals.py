"""Withdraws what a job was told to lose, whole or in part: while its notice runs, or where its worker refuses it.

The word stays the same: a worker that has followed it gives the pods back, as their quota is held.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from slicebus.decisions.commands import Command, Emit, Patch, Publish
from slicebus.kube.failures import tells_of_webhook
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.manifests import findings_patch
from slicebus.manager.decide.order import size_requests, withheld
from slicebus.manager.state.reclaims import taken_back
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Resync, counts_text
from slicebus.slices.admission.notices import is_for_budget, is_told_before
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload import reclaimed
from slicebus.slices.workload.reclaimed import Reclaimed
from slicebus.slices.workload.waiting import WRITE_REFUSED
from slicebus.slices.workload.workload import Slice

MAY_HAVE = "The job may have the pods again that it was to give back"
NOBODY_WAITS = "Nobody waits any more who may have the pods that were to be taken"
BELOW_LEAST = "The job has another least size since pods were to be taken"
NOBODY_PREEMPTS = "Nobody waits any more who may have its quota"
BUDGET_CHANGED = "The budget for which it was to go has changed"
REFUSED = "Its worker refuses to take the pods"
_WITHDRAWN = "ReclaimWithdrawn"
_PATIENCE = timedelta(minutes=1)
"""For so long a worker may refuse to take pods before they are left to their job."""


def is_told_to_go(view: JobView) -> bool:
    """Whether a job is evicted with notice, and its pods may still run."""
    slice = view.evicted
    if slice is None or not (slice.evicting and is_told_before(slice) and view.in_fleet):
        return False
    return bool(view.eviction_notice_s(slice)) and not (view.is_stopped or view.is_withdrawing)


def withdraw_eviction(view: JobView, *, now: str) -> list[Command]:
    """Leave a job its quota and its pods that is told to go for somebody who waits no more, or for a budget that has
    changed. A worker that has suspended it resumes it, as its quota is held. What stops it for another reason evicts it
    again. A size that the worker asked for meanwhile was not heard: it asks again."""
    slice, job = view.evicted, view.job
    cluster = view.cluster
    if slice is None or job is None or cluster is None or view.given_up or view.is_suspended_by_user:
        return []
    if not is_told_to_go(view):
        return []
    text = f"{BUDGET_CHANGED if is_for_budget(slice) else NOBODY_PREEMPTS}: keeps {counts_text(slice.held_counts)}"
    types = [type for type in (Condition.EVICTED, Condition.PREEMPTED) if slice.condition(type)]
    findings = [Finding(type, False, _WITHDRAWN, text) for type in types]
    findings.append(Finding(api_names.DISPATCHED_CONDITION, True, "Dispatched", f"Stays on cluster {cluster}"))
    workload = view.workload(slice)
    body = findings_patch(workload, *findings, now=now)
    return [
        Patch(resource=WORKLOADS, target=workload, body=body, subresource="status"),
        Publish(cluster=cluster, message=Resync(reason=_WITHDRAWN, jobs=[view.ref])),
        *(Emit(regarding=target, reason=_WITHDRAWN, note=text) for target in (workload, job)),
    ]


def is_below_least(view: JobView) -> bool:
    """Whether pods are still to go, after their notice, that the job has said since not to do without. One that names
    no least size any more would be evicted instead: it loses what it was told."""
    note, holder = view.desired.reclaimed, view.holder
    if note is None or holder is None or note.done or not note.notice_s or view.evicted is not None:
        return False
    if note.to_nobody:
        return False
    for name, left in note.to.items():
        held = holder.held_counts.get(name, left)
        floor = holder.elasticity.floor(name, step=holder.replica_sizes.get(name, 1))
        # Pods that nobody asked for go whatever the job says.
        if floor is not None and left < min(floor, held, note.asked.get(name, held)):
            return True
    return False


def given_up_at(view: JobView) -> datetime | None:
    """When the pods are left to a job that its worker refuses to take of it; None where it does not. Who waits for them
    takes the whole job, or pods of another one.

    A webhook that is down comes back, and would refuse to suspend the job as well. An order that waits for something is
    not refused.
    """
    note, holder = view.desired.reclaimed, view.holder
    if note is None or holder is None or note.done or note.grows or view.evicted is not None:
        return None
    since = _refused_since(view, note, holder)
    return since + _PATIENCE if since is not None else None


def _refused_since(view: JobView, note: Reclaimed, holder: Slice) -> datetime | None:
    """Since when the worker refuses the order, or what it has to write when the notice is over."""
    shown, taken_at = withheld.dispatched(view.workload(holder)), datetime.fromisoformat(note.at)
    if view.outbox is not None and not view.outbox.is_reported and withheld.is_denied(view.workload(holder)):
        return max(taken_at, datetime.fromisoformat(shown["lastTransitionTime"]))
    waits = view.waits
    if waits is None or waits.reason != WRITE_REFUSED or tells_of_webhook(waits.message):
        return None
    return max(taken_at + timedelta(seconds=note.notice_s), datetime.fromisoformat(waits.since))


def withdraw(view: JobView, why: str, *, refused_at: str = "") -> list[Command]:
    """Leave a job the pods that it has not lost yet. The word stays the same: a worker that has followed it gives them
    back, as their quota is held."""
    note, requested, holder = view.desired.reclaimed, view.desired.requested, view.holder
    if view.job is None or note is None or requested is None or holder is None or note.done:
        return []
    kept = {name: max(count, holder.held_counts.get(name, 0)) for name, count in note.to.items()}
    text = f"{why}: keeps {counts_text(kept)}"
    return [
        *size_requests.record(view, requested, note=reclaimed.withdraw(note, kept, refused_at=refused_at)),
        Emit(regarding=view.job, reason=_WITHDRAWN, note=text),
    ]


def spare(view: JobView) -> list[Command]:
    """Leave a job the pods that were to go for those who are gone, while others still wait."""
    note, requested, holder = view.desired.reclaimed, view.desired.requested, view.holder
    if view.job is None or note is None or requested is None or holder is None or view.evicted is not None:
        return []
    taken, less = view.desired.taken_back, reclaimed.spare(note, holder.held_counts, view.gone)
    if taken is None or less is None:
        return []
    if less.left_of(holder.held_counts) is None:
        return withdraw(view, NOBODY_WAITS)
    names = ", ".join(each.workload for each in note.beneficiaries if each not in less.beneficiaries)
    desired = replace(view.desired, taken_back=None)
    other = taken_back(view.job, desired, requested, less.to, at=taken.at, message=less.message, note=less.id)
    overrules = replace(requested, taken_back=other, follows="")
    text = f"The pods that were to be taken for {names} stay: goes to {counts_text(less.to)}"
    return [*size_requests.record(view, overrules, note=less), Emit(regarding=view.job, reason=_WITHDRAWN, note=text)]
