"""Calls back with the jobs that a change of a cached object concerns."""

from collections.abc import Callable, Iterable

from slicebus.kube.cache import Cache, Change
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.requirements import is_of_concern, waits_for_flavor
from slicebus.manager.state.store import ManagerStore, owner_ref
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.messages import JobRef, Manifest
from slicebus.slices.api import kueue

Callback = Callable[[JobRef], None]


def on_job_change(store: ManagerStore, callback: Callback, *, when: Callable[[Change], bool]) -> None:
    """Call back with this shard's job of every change that `when` lets pass, and when its priority class changes, or a
    flavor that its order may wait for.

    A change of a queue may give the shard jobs: it calls back with all jobs of that queue.
    """

    def concern(ref: JobRef, change: Change) -> None:
        # Asked first, because it costs less and most changes are of other shards' jobs.
        if store.has(ref) and when(change):
            callback(ref)

    def job_changed(change: Change) -> None:
        job = change.new or change.old
        if job is not None and (is_of_concern(job) or store.has_workloads(job)):
            concern(job_ref(job), change)

    def workload_changed(change: Change) -> None:
        # A Workload that was just orphaned still concerns its former owner.
        refs = (owner_ref(workload) for workload in (change.new, change.old) if workload)
        ref = next(filter(None, refs), None)
        if ref is not None:
            concern(ref, change)

    def class_changed(change: Change) -> None:
        """Call back with the jobs that wait for the class to be made, or whose slices have its old value."""
        for cache in store.jobs.values():
            for job in cache.all():
                name, ref = job["metadata"].get("labels", {}).get(kueue.PRIORITY_CLASS_LABEL), job_ref(job)
                if name == _name(change) and store.has(ref):
                    callback(ref)

    def template_changed(change: Change) -> None:
        """Call back with the jobs of the namespace that have no quota: their claims may be counted now."""
        for ref in list(dict.fromkeys(store.refs())):
            if ref.namespace == _namespace(change) and store.has(ref) and store.view(ref).holder is None:
                callback(ref)

    def flavor_changed(change: Change) -> None:
        """Call back with the jobs whose orders wait for a flavor."""
        waiting = [slice for slice in store.slices.values() if waits_for_flavor(slice)]
        for workload in filter(None, (store.workloads.get(slice.namespace, slice.name) for slice in waiting)):
            ref = owner_ref(workload)
            if ref is not None and store.has(ref):
                callback(ref)

    store.priority_classes.subscribe(class_changed)
    _subscribe_from_now_on(store.flavors, flavor_changed)
    _subscribe_from_now_on(store.claim_templates, template_changed)
    for cache in store.jobs.values():
        cache.subscribe(job_changed)
    store.workloads.subscribe(workload_changed)
    if not store.shards.is_alone:
        _on_queue_change(store, callback)


def _on_queue_change(store: ManagerStore, callback: Callback) -> None:
    def local_queue_changed(change: Change) -> None:
        if _spec(change.old) != _spec(change.new):
            key = _namespace(change), _name(change)
            _call(ref for ref in store.refs() if (ref.namespace, store.view(ref).queue) == key)

    def cluster_queue_changed(change: Change) -> None:
        if change.old is None or change.new is None:
            _call(ref for ref in store.refs() if store.cluster_queue_of(ref) in ("", _name(change)))

    def _call(refs: Iterable[JobRef]) -> None:
        for ref in list(dict.fromkeys(refs)):
            callback(ref)

    _subscribe_from_now_on(store.local_queues, local_queue_changed)
    _subscribe_from_now_on(store.cluster_queues, cluster_queue_changed)


def _subscribe_from_now_on(cache: Cache, changed: Callable[[Change], None]) -> None:
    """Call back on changes, and not with the objects that are there: the caches of jobs call back with all jobs."""
    begun = False
    cache.subscribe(lambda change: changed(change) if begun else None)
    begun = True


def on_fleet_change(store: ManagerStore, callback: Callback) -> None:
    """Call back with every job that has quota and no cluster, whenever a cluster changes its place.

    When a cluster leaves the fleet, call back with every job on it too.
    """

    def changed(change: Change) -> None:
        before, after = (WorkerCluster.from_manifest(m).place if m else None for m in (change.old, change.new))
        if before == after:
            return
        concerned = {None, "", before.name if before and not after else None}
        for slice in [slice for slice in store.slices.values() if slice.admitted and slice.cluster in concerned]:
            workload = store.workloads.get(slice.namespace, slice.name)
            ref = owner_ref(workload) if workload else None
            if ref is not None:
                callback(ref)

    store.clusters.subscribe(changed)


def _name(change: Change) -> str:
    name: str = _manifest(change)["metadata"]["name"]
    return name


def _namespace(change: Change) -> str:
    namespace: str = _manifest(change)["metadata"]["namespace"]
    return namespace


def _manifest(change: Change) -> Manifest:
    manifest = change.new or change.old
    assert manifest is not None
    return manifest


def _spec(manifest: Manifest | None) -> Manifest | None:
    return manifest["spec"] if manifest else None
