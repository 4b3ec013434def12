"""Decides which chains leave their clusters now, by everything that the manager knows."""

from slicebus.manager.decide.cluster import relocation
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import ClusterName
from slicebus.slices.admission.cycle import Evict


def due(store: ManagerStore) -> list[Evict]:
    """The evictions of the chains that leave drained and lost clusters now, some at a time of a drained one, and of
    those that were refused by clusters without their namespace or scheduler backend."""
    clusters = {cluster.name: cluster for cluster in store.quotas.worker_clusters}
    slices = [slice for slice in store.slices.values() if store.shards.has_queue(slice.local_queue)]
    drained = {cluster.name for cluster in clusters.values() if cluster.draining}
    lacking = {cluster.name for cluster in clusters.values() if cluster.lacking}
    refused = {
        slice.key: leaves
        for slice in slices
        if (slice.scheduler or slice.cluster in lacking)
        and (cluster := clusters.get(ClusterName(slice.cluster or ""))) is not None
        and (leaves := relocation.leaves_for_want(slice, cluster)) is not None
        and (workload := store.workloads.get(slice.namespace, slice.name)) is not None
        and relocation.is_refused(workload)
    }
    if not (drained or refused or store.given_up):
        return []
    return relocation.evictions(
        slices,
        drained=drained,
        given_up=set(store.given_up),
        refused=refused,
        at_once=store.settings.drain_at_once,
    )
