"""Finds granted pods that stay gated because terminating pods do not go, as those of a node that is lost.

A terminating pod may run on, so it has its place in the grant until it has gone. The controller of its job may make
another one at once, which waits for that place.
"""

from collections.abc import Iterator
from datetime import timedelta

from msgspec.structs import replace

from slicebus.agent.decide.pods.next_pods import next_pods
from slicebus.agent.decide.pods.pod_problems import age
from slicebus.agent.state.views import WorkerView
from slicebus.decisions.commands import Command, Requeue
from slicebus.proto.messages import Time
from slicebus.slices.jobs.base import Problem
from slicebus.slices.workload.ungate import Pod
from slicebus.slices.workload.waiting import PODS_TERMINATING

_SETTLES = timedelta(seconds=60)
"""How long pods may be there after their grace period before that is told. A kubelet that works removes them within
seconds."""
_MOST_NODES = 3
"""The most nodes that are named."""
_ENDS = (
    "A place is free when the kubelet has ended its pod. Of a node that is lost, delete the Node; of a pod with "
    "finalizers, remove them; a pod that surely runs no more may be deleted by force"
)


def problem(view: WorkerView, *, now: str) -> tuple[Problem, Time] | None:
    """Why granted pods stay gated, and since when the first of the terminating pods should be gone; None where none
    waits for those. `now` is RFC 3339."""
    left = {pod.name: pod for pod in _in_the_way(view) if age(_due(pod), now) >= _SETTLES}
    if not left:
        return None
    without = replace(view, pods=tuple(pod for pod in view.pods if pod.name not in left))
    kept = len(next_pods(without)) - len(next_pods(view))
    if kept <= 0:
        return None
    stay, they = ("1 granted pod stays", "its place") if kept == 1 else (f"{kept} granted pods stay", "their places")
    has = "1 terminating pod has" if len(left) == 1 else f"{len(left)} terminating pods have"
    text = f"{stay} gated, as {has} {they}: {_where([*left.values()])}. {_ENDS}"
    return Problem(PODS_TERMINATING, text), min(map(_due, left.values()))


def requeue_after(view: WorkerView, *, now: str) -> list[Command]:
    """Requeue the job for when the next terminating pod is told. Call it after each reconcile: of several delays only
    the earliest counts."""
    left = [_SETTLES - age(_due(pod), now) for pod in _in_the_way(view)]
    due = min((time for time in left if time > timedelta(0)), default=None)
    if view.reading is None or due is None:
        return []
    # Times are whole seconds.
    return [Requeue(job=view.reading.ref, delay_s=due.total_seconds() + 1)]


def _in_the_way(view: WorkerView) -> Iterator[Pod]:
    """The terminating pods of pod sets in which pods wait for their start."""
    if view.reading is None or not view.reading.runs:
        return
    for members in view.pod_sets.values():
        if members.gated:
            yield from (pod for pod in members.running if pod.is_terminating)


def _due(pod: Pod) -> Time:
    """When it should be gone: its grace period is over."""
    time: Time = pod.manifest["metadata"]["deletionTimestamp"]
    return time


def _where(pods: list[Pod]) -> str:
    nodes = sorted({pod.manifest["spec"].get("nodeName") or "" for pod in pods})
    named = [f"on node {node}" if node else "on no node" for node in nodes[:_MOST_NODES]]
    return ", ".join([*named, *(["…"] if len(nodes) > _MOST_NODES else [])])
