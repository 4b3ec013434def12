"""Tells of pods that run on although somebody has deleted their job without them, as `--cascade=orphan` does.

They keep the job's quota until they have ended: only then the job is reported as gone. Pods that the garbage collector
has yet to delete still name their owner, and so do those of a RayCluster that was left alone, which runs on itself.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from slicebus.agent.decide.job.reconcile import published
from slicebus.agent.state.status_bounds import told_pods
from slicebus.agent.state.views import JobKey, WorkerView
from slicebus.decisions.commands import Command
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.messages import ClusterName, JobPhase, Manifest, Status, Waits
from slicebus.slices.api import api_names
from slicebus.slices.workload.ungate import Pod
from slicebus.slices.workload.waiting import PODS_ORPHANED


def report(
    view: WorkerView,
    gone: Status,
    cluster: ClusterName,
    *,
    owners: Mapping[str, str] = MappingProxyType({}),
    last: tuple[Status, float] | None,
    now: str,
) -> list[Command]:
    """Publish once how many there are and why they keep quota; nothing where none is left alone.

    `gone` is the report that waits for their end, `owners` what was left alone with its pods (`owners_left`), `last`
    what was reported of the job's name last.
    """
    alone = {"": "pods", **owners}
    left = [
        (name, alone[pod.owner_uid])
        for name, members in view.pod_sets.items()
        for pod in members.running
        if pod.owner_uid in alone and _is_of(pod, gone.job.uid)
    ]
    if not left:
        return []
    orphans = Counter(name for name, _ in left)
    before = last[0] if last is not None and last[0].job == gone.job else None
    told = before.waits if before is not None and before.waits else None
    since = told.since if told is not None and told.reason == PODS_ORPHANED else now
    message = _message(orphans.total(), view.key.kind, sorted({what for _, what in left}))
    present = replace(
        before or replace(gone, phase=JobPhase.RUNNING, seen=False),
        waits=Waits(wanted=dict(orphans), reason=PODS_ORPHANED, message=message, since=since),
        pods=told_pods(view.pod_sets),
    )
    if present == before:
        return []
    return published(view, present, cluster, now_s=0.0)


def is_told(last: tuple[Status, float] | None) -> bool:
    """Whether the last report of a job's name was of such pods."""
    waits = last[0].waits if last is not None else None
    return isinstance(waits, Waits) and waits.reason == PODS_ORPHANED


def owners_left(view: WorkerView, find: Callable[[JobKey], Manifest | None]) -> dict[str, str]:
    """The kinds, by UID, of what a job that is gone has made, and nobody owns any more: its RayCluster, or the Job that
    submits to that. `find` reads one."""
    owners = {pod.owner for members in view.pod_sets.values() for pod in members.running if pod.owner is not None}
    made = (find(JobKey(owner.kind, view.key.namespace, owner.name)) for owner in owners if owner.kind in JOB_RESOURCES)
    return {
        owner["metadata"]["uid"]: owner["kind"]
        for owner in made
        if owner is not None and not owner["metadata"].get("ownerReferences")
    }


def _is_of(pod: Pod, uid: str) -> bool:
    return not pod.is_terminating and pod.labels.get(api_names.MANAGER_UID_LABEL) == uid


def _message(number: int, kind: str, left: Sequence[str]) -> str:
    pods = "1 pod runs on and keeps its" if number == 1 else f"{number} pods run on and keep their"
    return f"somebody has deleted the {kind} without its {' and its '.join(left)}: {pods} quota to the end"
