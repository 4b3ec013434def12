"""Decides which chains leave their cluster: it is drained or lost, or has refused them and lacks their namespace.

The chains of a drained cluster are evicted a few at a time, and go elsewhere when their worker has no pod of them left.
A lost cluster cannot report that. It is given up when its agent lets no pod start any more (see the agent's fence). Its
chains go elsewhere at once, and its copies of them are removed before its fence opens again.
"""

from collections.abc import Collection, Iterable, Mapping

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.manager.decide.order import withheld
from slicebus.manager.state.outbox import Dispatch, applied_version
from slicebus.manager.state.worker_clusters import GIVEN_UP, WorkerCluster
from slicebus.proto.messages import Manifest
from slicebus.slices.admission.cycle import Evict
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, has_finding, with_findings
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.quota.quota import holders
from slicebus.slices.workload.workload import Slice, SliceKey

FENCE_SHARE = 0.75
"""The fence as a share of the time after which a cluster is given up. The rest is for clocks that run unevenly, and for
requests that are under way when the fence closes."""

_WANT_OF_SCHEDULER = ("SchedulerNotEnabled", "SchedulerUnusable")
"""The reasons with which agents refuse to make a copy for want of its scheduler backend."""


def fence_s(requeue_s: float | None) -> float | None:
    """The fence that agents shall keep, in seconds; None for none, where no cluster is given up."""
    return None if requeue_s is None else requeue_s * FENCE_SHARE


def is_outage(clusters: Iterable[WorkerCluster], silent: Collection[str]) -> bool:
    """Whether more than half of the accepted clusters are silent: then the broker or the manager is cut off."""
    accepted = [cluster.name for cluster in clusters if cluster.accepted]
    return 2 * sum(name in silent for name in accepted) > len(accepted)


def assess(cluster: WorkerCluster, *, silent_s: float, requeue_s: float, outage: bool) -> Finding | None:
    """Whether a silent cluster is given up, or why not; None before its time.

    `silent_s` is the length of its silence, and `requeue_s` the silence after which clusters are given up.
    """
    if silent_s < requeue_s:
        return None
    if outage:
        message = "More than half of the clusters are silent at once: no jobs are moved"
        return Finding(GIVEN_UP, False, "TooManySilent", message)
    if cluster.fence_s is None:
        message = "Its agent may let pods start: its jobs stay until the WorkerCluster is deleted"
        return Finding(GIVEN_UP, False, "NoFence", message)
    if silent_s * FENCE_SHARE < cluster.fence_s:
        return None
    return Finding(GIVEN_UP, True, "ClusterLost", f"No heartbeat for {requeue_s:g} seconds: its jobs go elsewhere")


def returned() -> Finding:
    """The finding for a given-up cluster that is back."""
    return Finding(GIVEN_UP, False, "Returned", "The agent speaks, and has nothing left of jobs that went elsewhere")


def show(cluster: Manifest, finding: Finding, *, now: str) -> list[Command]:
    """Show the finding as a condition and an Event; nothing where it is shown already."""
    if has_finding(cluster, finding):
        return []
    body = {"status": {"conditions": with_findings(cluster, finding, now=now)}}
    return [
        Patch(resource=WORKERCLUSTERS, target=cluster, body=body, subresource="status"),
        Emit(regarding=cluster, reason=finding.reason, note=finding.message, warning=finding.reason != "Returned"),
    ]


def evictions(
    slices: Iterable[Slice],
    *,
    drained: Collection[str],
    given_up: Collection[str],
    refused: Mapping[SliceKey, Evict] = {},
    at_once: int,
) -> list[Evict]:
    """The evictions of chains that leave now, in order of their names, at most `at_once` of a drained cluster.

    `refused` has the evictions of slices that wait on a cluster for what it lacks.
    """
    placed = [slice for slice in holders(slices).values() if slice.cluster and not slice.deleting]
    free = {cluster: at_once - sum(s.evicted and s.cluster == cluster for s in placed) for cluster in drained}
    decided: list[Evict] = []
    for slice in sorted(placed, key=lambda slice: slice.key):
        if slice.evicted or slice.cluster is None:
            continue
        if slice.cluster in given_up:
            message = f"The cluster {slice.cluster} is lost"
            decided.append(Evict(key=slice.key, reason=EvictionReason.CLUSTER_LOST, message=message))
        elif slice.key in refused:
            decided.append(refused[slice.key])
        elif free.get(slice.cluster, 0) > 0:
            free[slice.cluster] -= 1
            message = f"The cluster {slice.cluster} is drained"
            decided.append(Evict(key=slice.key, reason=EvictionReason.CLUSTER_DRAINED, message=message))
    return decided


def leaves_for_want(slice: Slice, cluster: WorkerCluster) -> Evict | None:
    """The eviction of a slice that its cluster has refused for want of a namespace or a scheduler backend; None where
    it has both. A backend is wanted only where the copy is made: what runs goes on without one that was named since."""
    if slice.namespace in cluster.lacking:
        message = f"The cluster {cluster.name} takes no jobs of the namespace {slice.namespace}"
        return Evict(key=slice.key, reason=EvictionReason.NAMESPACE_LACKING, message=message)
    refusal = slice.conditions.get(api_names.DISPATCHED_CONDITION, {}).get("reason")
    if slice.scheduler and slice.scheduler not in cluster.scheduler_backends and refusal in _WANT_OF_SCHEDULER:
        message = f"The cluster {cluster.name} has no scheduler backend {slice.scheduler}"
        return Evict(key=slice.key, reason=EvictionReason.SCHEDULER_LACKING, message=message)
    return None


def is_refused(workload: Manifest) -> bool:
    """Whether its cluster has refused the newest version of a Workload: what was applied runs on."""
    record = Dispatch.from_manifest(workload)
    return withheld.shows_refusal(workload) and record is not None and record.version > applied_version(workload)
