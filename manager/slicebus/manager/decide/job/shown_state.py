"""The state of a job in one word and the cluster that it is on, for everybody who shows jobs."""

from typing import Any

from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.annotations import reported_status
from slicebus.manager.state.shown_states import ShownState
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import JobPhase
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS

_ENDS = {JobPhase.SUCCEEDED: ShownState.SUCCEEDED, JobPhase.FAILED: ShownState.FAILED}


def shown_state(view: JobView, *, is_reached: bool = True) -> ShownState:
    """The state of a job. `is_reached`: whether its cluster is connected, where it has one."""
    job = view.job
    if job is None or "deletionTimestamp" in job["metadata"]:
        return ShownState.DELETING
    if view.outcome.phase in _ENDS and (view.is_managed or view.slices):
        return _ENDS[view.outcome.phase]
    if not view.is_managed:
        return ShownState.UNMANAGED
    if view.holder is not None:
        return _with_quota(view, is_reached=is_reached)
    if view.is_suspended_by_user:
        return ShownState.SUSPENDED
    if any(slice.evicting for slice in view.slices):
        return ShownState.EVICTING
    return ShownState.REFUSED if view.problems or _is_refused(job) else ShownState.PENDING


def shown_cluster(view: JobView) -> str:
    """The worker cluster that a job is on, or goes to; empty for none, and for a job that waits without quota: the
    cluster that it had may keep a copy of it without pods, and it may go to another one."""
    waits = bool(view.unfinished) and all(slice.admission is None for slice in view.unfinished)
    return "" if waits else view.cluster or ""


def ready_pods(view: JobView) -> int | None:
    """How many pods of a job are ready, as far as its worker has reported that; None where nobody has."""
    if view.job is None or view.holder is None:
        return 0
    if view.holder.condition(Condition.PODS_READY):
        return sum(view.holder.granted.values())
    return KINDS[view.ref.kind].ready(reported_status(view.job))


def _with_quota(view: JobView, *, is_reached: bool) -> ShownState:
    assert view.holder is not None
    if not is_reached or dispatch.has_unknown_end(view):
        return ShownState.UNKNOWN
    if any(slice.evicting for slice in view.slices):
        return ShownState.EVICTING
    if view.desired.counts != view.holder.granted:
        return ShownState.RESIZING
    is_empty = not any(view.holder.granted.values())
    return ShownState.RUNNING if is_empty or ready_pods(view) else ShownState.ADMITTED


def _is_refused(job: dict[str, Any]) -> bool:
    return any(
        entry["type"] == api_names.ACCEPTED_CONDITION and entry["status"] == "False" for entry in conditions_of(job)
    )
