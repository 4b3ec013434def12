"""The quota of the cached objects, kept so that one tree of it can be decided without reading the others."""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from slicebus.kube.cache import Cache
from slicebus.kube.readings import Readings
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.messages import Manifest
from slicebus.slices.admission import Admit, Snapshot
from slicebus.slices.cohorts import queue_node, trees
from slicebus.slices.fleet import Strategy
from slicebus.slices.ledger import Ledger, LocalQueueKey
from slicebus.slices.placement import usage_of
from slicebus.slices.quantities import add
from slicebus.slices.quota import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Usage, usage_by_chain
from slicebus.slices.sharing import FairSharing
from slicebus.slices.workload import Slice, SliceKey

NOWHERE = "nowhere"
"""In place of a tree, for workloads whose queue does not exist."""
SliceFollower = Callable[[Slice | None, Slice | None], None]
"""Is called with a slice as it was, and as it is."""


class Quotas:
    """Follows these caches."""

    def __init__(
        self,
        *,
        workloads: Cache,
        cluster_queues: Cache,
        cohorts: Cache,
        local_queues: Cache,
        flavors: Cache,
        namespaces: Cache,
        clusters: Cache,
    ) -> None:
        self.ledger = Ledger()
        """Every Workload as a slice."""
        self._trees: dict[str, str] | None = None
        self._followers: list[SliceFollower] = []
        self._workloads = Readings(
            workloads, Slice.from_manifest, read_again=_reread_slice, on_change=self._slice_changed
        )
        self._cluster_queues = Readings(cluster_queues, ClusterQueue.from_manifest, on_change=self._forest_changed)
        self._cohorts = Readings(cohorts, Cohort.from_manifest, on_change=self._forest_changed)
        self._local_queues = Readings(local_queues, LocalQueue.from_manifest)
        self._flavors = Readings(flavors, ResourceFlavor.from_manifest)
        self._namespaces = namespaces
        self._clusters = Readings(clusters, WorkerCluster.from_manifest)

    @property
    def cluster_queues(self) -> dict[str, ClusterQueue]:
        """The readable ClusterQueues by name. One whose quota is not a quantity counts as missing."""
        return {queue.name: queue for queue in self._cluster_queues.values.values()}

    @property
    def cohorts(self) -> tuple[Cohort, ...]:
        """The readable Cohorts."""
        return tuple(self._cohorts.values.values())

    @property
    def worker_clusters(self) -> list[WorkerCluster]:
        """Every WorkerCluster of the fleet that can be read."""
        return list(self._clusters.values.values())

    @property
    def trees(self) -> Mapping[str, str]:
        """The root of each ClusterQueue and Cohort, by their names as nodes."""
        if self._trees is None:
            self._trees = trees(self._cluster_queues.values.values(), self.cohorts)
        return self._trees

    def cluster_queue_of(self, local_queue: LocalQueueKey) -> str:
        """The ClusterQueue that a LocalQueue names; empty where there is no such LocalQueue."""
        local = self._local_queues.values.get(local_queue)
        return local.cluster_queue if local else ""

    def tree_of(self, local_queue: LocalQueueKey) -> str:
        """The tree of quota that a LocalQueue belongs to."""
        return self.trees.get(queue_node(self.cluster_queue_of(local_queue)), NOWHERE)

    def is_settled(self, only: Collection[str] | None) -> bool:
        """Whether no slice waits for quota of these trees, and none that has quota was stopped. None stands for all."""
        if self.ledger.inactive or any(only is None or self.tree_of(key) in only for key in self.ledger.waiting_in()):
            return False
        if any(queue.drained for queue in self._cluster_queues.values.values()):
            return False
        return not any(queue.drained for queue in self._local_queues.values.values())

    def snapshot(
        self,
        only: Collection[str] | None,
        assumed: Mapping[SliceKey, Admit],
        *,
        strategy: Strategy = Strategy.SPREAD,
        fair_sharing: FairSharing = FairSharing.OFF,
        rings_since: str | None = None,
    ) -> Snapshot:
        """The input of an admission cycle over some trees; all for None. `assumed` slices count as admitted."""
        queues = self.cluster_queues
        if only is not None:
            queues = {name: queue for name, queue in queues.items() if self.trees[queue_node(name)] in only}
        load, granted = dict(self.ledger.load), dict(self.ledger.granted)
        for key, admit in assumed.items():
            slice = self.ledger.slices.get(key)
            if slice is None or slice.admission is not None:
                continue
            if slice.replaces is None:
                load[admit.cluster] = load.get(admit.cluster, 0) + 1
            granted[admit.cluster] = add(granted.get(admit.cluster, {}), self._added_usage(slice, admit))
        return Snapshot(
            cluster_queues=queues,
            cohorts=self.cohorts,
            local_queues=self._local_queues.values,
            flavors={flavor.name: flavor for flavor in self._flavors.values.values()},
            namespaces={
                space["metadata"]["name"]: space["metadata"].get("labels") or {} for space in self._namespaces.all()
            },
            slices=tuple(_assumed(slice, assumed.get(slice.key)) for slice in self._slices_of(queues, only)),
            clusters=tuple(cluster.place for cluster in self.worker_clusters),
            load=load,
            granted=granted,
            strategy=strategy,
            fair_sharing=fair_sharing,
            rings_since=rings_since,
        )

    def _added_usage(self, slice: Slice, admit: Admit) -> Usage:
        """The usage that an admission adds to that of its chain."""
        queue, chain = admit.admission.cluster_queue, self.ledger.chain(slice.chain_id)
        charged = usage_by_chain(chain).get((queue, slice.chain_id), {})
        return {key: max(0, need - charged.get(key, 0)) for key, need in usage_of(slice, admit.admission).items()}

    def _slices_of(self, queues: Collection[str], only: Collection[str] | None) -> Iterable[Slice]:
        if only is None:
            return (slice for slice in self.ledger.slices.values() if not slice.finished)
        waiting = {key for key in self.ledger.waiting_in() if self.tree_of(key) in only}
        # A chain may hold quota here and wait for more in a queue of another tree.
        part = self.ledger.part(queues, waiting)
        return (
            slice
            for slice in part
            if not slice.finished and (slice.admission is not None or (slice.namespace, slice.queue) in waiting)
        )

    def follow_slices(self, follower: SliceFollower) -> None:
        """Call back with every slice that is added, changed or removed; at first with every present one."""
        self._followers.append(follower)
        for slice in self.ledger.slices.values():
            follower(None, slice)

    def _slice_changed(self, old: Slice | None, new: Slice | None) -> None:
        """Most writes on a Workload are annotations of its dispatch, which leave the slice as it is."""
        if new == old:
            return
        if new is not None:
            self.ledger.put(new)
        elif old is not None:
            self.ledger.remove(old.key)
        for follower in self._followers:
            follower(old, new)

    def _forest_changed(self, _old: object, _new: object) -> None:
        self._trees = None


def _reread_slice(new: Manifest, old: Manifest, slice: Slice) -> Slice:
    """Read a slice again, with the parts that have not changed: parsing their quantities takes the time."""

    def is_same(part: str, name: str) -> bool:
        return bool(new.get(part, {}).get(name) == old.get(part, {}).get(name))

    return Slice.from_manifest(
        new,
        pod_sets=slice.pod_sets if is_same("spec", "podSets") else (),
        admission=slice.admission if is_same("status", "admission") else None,
    )


def _assumed(slice: Slice, admit: Admit | None) -> Slice:
    """The slice with an admission that was sent and not answered."""
    if admit is None:
        return slice
    return msgspec.structs.replace(slice, admission=admit.admission, cluster=admit.cluster)
