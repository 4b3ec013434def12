"""Chooses the pods that go when an order makes a job smaller, where the job's controller can be told: those that have
least to lose, in whole replicas.

KubeRay without Ray's autoscaler takes any pods otherwise. It never clears the names: they go when the pods are gone.
"""

from collections import defaultdict
from collections.abc import Iterable

from slicebus.agent.decide.pods.going_pods import told_until
from slicebus.agent.decide.pods.pod_problems import age
from slicebus.agent.state.annotations import annotation
from slicebus.agent.state.views import WorkerView
from slicebus.decisions.commands import Command, Patch, Requeue
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.ungate import Pod


def named(view: WorkerView, target: Manifest, counts: Counts) -> list[Manifest]:
    """The JSON patch that names the pods of a scale target that are more than it shall have; empty for none."""
    kind = KINDS[view.key.kind]
    names = {name: _surplus(view, target, name, count) for name, count in counts.items()}
    return kind.name_for_deletion(target, {name: going for name, going in names.items() if going})


def cleared(view: WorkerView) -> list[Patch]:
    """Takes the names out of a job's scale targets once none of these pods is left. Ray's autoscaler clears its own."""
    kind, job = KINDS[view.key.kind], view.reading
    if job is None or not job.runs:
        return []
    present = {pod.name for pod in view.pods}
    patches: list[Patch] = []
    for target in view.scale_targets:
        going = kind.named_for_deletion(target)
        if going and not kind.is_autoscaled(target) and present.isdisjoint(going):
            body = kind.name_for_deletion(target, dict.fromkeys(kind.counts(job.manifest, target), ()))
            patches.append(Patch(resource=JOB_RESOURCES[target["kind"]], target=target, body=body))
    return patches


def overdue(view: WorkerView, *, now: str, after_s: float) -> list[Patch]:
    """Ends pods that Ray's autoscaler has not ended in this time since they are no longer allowed, in one patch as it
    would write it."""
    kind, job, since = KINDS[view.key.kind], view.reading, view.surplus_since
    if job is None or not job.runs or since is None or age(since, now).total_seconds() < after_s:
        return []
    patches: list[Patch] = []
    for target in filter(kind.is_capped, view.scale_targets):
        counts = kind.counts(job.manifest, target)
        names = {name: _surplus(view, target, name, count) for name, count in counts.items()}
        if body := kind.enforce_cap(target, {name: going for name, going in names.items() if going}):
            patches.append(Patch(resource=JOB_RESOURCES[target["kind"]], target=target, body=body))
    return patches


def requeue_after(view: WorkerView, *, now: str, after_s: float) -> list[Command]:
    """Requeue the job for when `overdue` ends pods. Call it after each reconcile: of several delays only the earliest
    counts."""
    job, since = view.reading, view.surplus_since
    if job is None or since is None or not any(map(KINDS[view.key.kind].is_capped, view.scale_targets)):
        return []
    left_s = after_s - age(since, now).total_seconds()
    # Times are whole seconds.
    return [Requeue(job=job.ref, delay_s=left_s + 1)] if left_s > 0 else []


def _surplus(view: WorkerView, target: Manifest, pod_set: str, count: int) -> list[str]:
    """The pods of a pod set that are more than this count, of whole replicas; those that go anyway are among them."""
    kind = KINDS[view.key.kind]
    replicas: defaultdict[tuple[str, str], list[Pod]] = defaultdict(list)
    size = kind.replica_size(target, pod_set)
    for pod in view.pods:
        if pod.pod_set == pod_set and pod.owner_uid == target["metadata"]["uid"]:
            _, name = kind.replica(pod.labels, pod.owner_uid) if size > 1 else ("", "")
            replicas[("replica", name) if name else ("pod", pod.name)].append(pod)
    members = list(replicas.values())
    if any(known == "replica" for known, _ in replicas):
        # KubeRay neither counts nor deletes what has no name of a replica by then.
        members = [pods for (known, _), pods in replicas.items() if known == "replica"]
    else:
        size = 1
    surplus, asked = len(members) - count // size, view.named_for_deletion
    if surplus <= 0:
        return []
    members.sort(key=lambda pods: pods[0].name)
    members.sort(key=lambda pods: max(map(_created, pods)), reverse=True)
    members.sort(key=lambda pods: min(0 if pod.is_terminating or pod.is_over else told_until(pod) for pod in pods))
    members.sort(key=lambda pods: _loss(pods, size=size, asked=asked))
    kept = sum(any(pod.name in asked for pod in pods) for pods in members)
    return _names(members[: max(surplus, kept)])


def _loss(pods: list[Pod], *, size: int, asked: frozenset[str]) -> int:
    """How much is lost with the pods of a replica, or with one pod: more for a larger number."""
    if any(pod.name in asked for pod in pods):
        return 0
    if len(pods) < size or any(pod.is_terminating or pod.is_over or _is_told(pod) for pod in pods):
        return 1
    if any(pod.is_gated for pod in pods):
        return 2
    return 4 if all(pod.is_ready for pod in pods) else 3


def _is_told(pod: Pod) -> bool:
    return annotation(pod.manifest, api_names.RECLAIM_ANNOTATION) is not None


def _created(pod: Pod) -> str:
    created: str = pod.manifest["metadata"].get("creationTimestamp", "")
    return created


def _names(replicas: Iterable[list[Pod]]) -> list[str]:
    return sorted(pod.name for pods in replicas for pod in pods)
