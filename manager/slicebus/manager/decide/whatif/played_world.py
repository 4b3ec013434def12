"""The quota, the clusters and the slices of a play, in the store of a manager: its own ledger and snapshots."""

from collections.abc import Sequence
from datetime import UTC, datetime

from slicebus.kube.resources import CLUSTERQUEUES, COHORTS, WORKERCLUSTERS, Resource
from slicebus.manager.decide.admission.snapshots import Since, snapshot_of
from slicebus.manager.decide.cluster import moves
from slicebus.manager.decide.whatif.fronts import Fronts
from slicebus.manager.decide.whatif.recorded_jobs import quota_of
from slicebus.manager.decide.whatif.recorded_past import nominal_of
from slicebus.manager.state.settings import LeaderSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.messages import ClusterName, Manifest
from slicebus.slices.admission.cycle import Decision, Evict, cycle
from slicebus.slices.quota.cohorts import queue_node
from slicebus.slices.quota.quota import FlavorResource
from slicebus.slices.workload.workload import Slice


class PlayedWorld:
    """Keeps what decides, and which trees of quota have to be decided again, as the manager does."""

    def __init__(self, settings: LeaderSettings) -> None:
        self.cycles = 0
        """How many were decided."""
        self._settings = settings
        self._store = ManagerStore()
        self._store.configure(settings)
        self._quotas = self._store.quotas
        self.ledger = self._quotas.ledger
        self.waiting = Fronts(self.put, self.drop)
        self._dirty: set[str] = set()
        self._all_dirty = True
        self._releases = 0

    def take(self, resource: Resource, manifest: Manifest, *, gone: bool = False) -> None:
        """Have a queue, a flavor or a cluster be like this from now on, or be there no longer."""
        cache = self._store.cache_of(resource)
        assert cache is not None
        before = cache.get(manifest["metadata"].get("namespace"), manifest["metadata"]["name"])
        if not gone:
            cache.put(manifest)
        elif before is not None:
            cache.drop(before)
        if resource == WORKERCLUSTERS:
            self._take_cluster(manifest, before, gone=gone)
        else:
            self._all_dirty = True

    def due_moves(self) -> list[Evict]:
        """The evictions of the jobs that leave their clusters now."""
        return moves.due(self._store)

    def queue_of(self, slice: Slice) -> str:
        """The ClusterQueue of a slice."""
        return self._quotas.cluster_queue_of(slice.local_queue)

    def quota(self) -> dict[FlavorResource, int]:
        """The sum of all nominal quota."""
        caches = ((CLUSTERQUEUES, self._store.cluster_queues), (COHORTS, self._store.cohorts))
        return quota_of(nominal_of(resource, manifest) for resource, cache in caches for manifest in cache.all())

    def holder(self, chain: str) -> Slice | None:
        """The slice of a job that has quota."""
        return self.ledger.holdings.holder(chain)

    def put(self, slice: Slice) -> None:
        """Add or replace a slice."""
        self.ledger.put(slice)
        self._touch(slice)

    def drop(self, slice: Slice) -> None:
        """Remove a slice."""
        self.ledger.remove(slice.key)
        self._touch(slice)

    def decide_all(self) -> None:
        """Have everything decided again."""
        self._all_dirty = True

    def decide(self, at: float) -> Sequence[Decision]:
        """What a cycle decides then about everything that has changed; nothing where nobody waits for that."""
        trees = None if self._all_dirty else sorted(self._dirty)
        self._all_dirty, self._dirty = False, set()
        if trees == [] or self._quotas.is_settled(trees):
            return ()
        since = Since.at(datetime.fromtimestamp(at, UTC), growth_window_s=self._settings.growth_window_s)

        def run() -> Sequence[Decision]:
            self.cycles += 1
            return cycle(snapshot_of(self._store, trees, since))

        decided = self.waiting.cycle(run)
        self._all_dirty, self._dirty = False, set()  # Others of a kind came to the front: nothing has changed.
        return decided

    def _take_cluster(self, manifest: Manifest, before: Manifest | None, *, gone: bool) -> None:
        new, old = WorkerCluster.from_manifest(manifest), WorkerCluster.from_manifest(before) if before else None
        name = ClusterName(new.name)
        if new.given_up and not gone:
            self._store.given_up[name] = True
        elif name in self._store.given_up:
            del self._store.given_up[name]
        if gone or old is None or old.without_room() != new.without_room():
            self._all_dirty = True
        elif new.has_more_room_than(old):
            self._room_grew()

    def _touch(self, slice: Slice) -> None:
        """Have the trees decided that a slice concerns."""
        if slice.admission is not None and (tree := self._quotas.trees.get(queue_node(slice.admission.cluster_queue))):
            self._dirty.add(tree)
        self._dirty.add(self._quotas.tree_of(slice.local_queue))
        if self.ledger.releases != self._releases:
            self._releases = self.ledger.releases
            self._room_grew()

    def _room_grew(self) -> None:
        self._dirty |= {self._quotas.tree_of(queue) for queue in self.ledger.waiting_for_a_place()}
