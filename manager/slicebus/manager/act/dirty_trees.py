"""Notes which trees of quota a change makes dirty, so that the next admission cycle decides them."""

import asyncio
from collections.abc import Iterable, Mapping

from slicebus.ambient.timers import Timers
from slicebus.kube.cache import Change
from slicebus.manager.state.quota_trees import NOWHERE
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.messages import Manifest
from slicebus.slices.quota.cohorts import cohort_node, queue_node
from slicebus.slices.workload.workload import Slice


class DirtyTrees:
    """Follows the caches of a store. At first every tree is dirty."""

    def __init__(self, store: ManagerStore) -> None:
        self.pending = asyncio.Event()
        """Set while any tree is dirty."""
        self._quotas = store.quotas
        self._trees: set[str] = set()
        self._nodes: set[str] = set()
        self._all = False
        self._before: Mapping[str, str] = {}
        self._releases = 0
        self._edited: set[str] = set()
        """The nodes whose spec somebody has edited since the trees were last taken."""
        self._clusters: set[str] = set()
        """The worker clusters that accept other jobs since then."""
        self._timers = Timers[tuple[str, ...]](self.add)
        store.quotas.on_slice_change(self._slice_changed)
        store.local_queues.subscribe(self._local_queue_changed)
        store.cluster_queues.subscribe(lambda change: self._node_changed(queue_node(_name(change)), change))
        store.cohorts.subscribe(lambda change: self._node_changed(cohort_node(_name(change)), change))
        for cache in (store.flavors, store.namespaces):
            cache.subscribe(lambda _: self.add(None))
        store.clusters.subscribe(self._cluster_changed)

    def take(self) -> list[str] | None:
        """Return the dirty trees, and make them clean. None stands for all trees."""
        trees, before, dirty = self._quotas.trees, self._before, self._trees
        nodes = before.keys() | trees.keys() if trees is not before else ()
        moved = {node for node in nodes if before.get(node) != trees.get(node)}
        for node in moved | self._nodes:
            dirty |= {tree for tree in (before.get(node), trees.get(node)) if tree}
        everything, self._before = self._all, trees
        self._trees, self._nodes, self._all = set(), set(), False
        self._edited, self._clusters = set(), set()
        self.pending.clear()
        return None if everything else sorted(dirty)

    def is_edited(self, queue: str, cluster: str | None) -> bool:
        """Whether somebody has edited what a decision depends on since the trees were last taken: a quota, a limit, a
        policy or a stop in the tree of this ClusterQueue, or which jobs this worker cluster accepts."""
        trees = self._trees_of(queue_node(queue))
        return cluster in self._clusters or any(trees & self._trees_of(node) for node in self._edited)

    def _trees_of(self, node: str) -> set[str]:
        """The trees that have the node now, or had it when the trees were last taken."""
        return {tree for tree in (self._before.get(node), self._quotas.trees.get(node)) if tree}

    def add(self, trees: Iterable[str] | None) -> None:
        """Make these trees dirty; all for None."""
        if trees is None:
            self._all = True
        else:
            self._trees |= set(trees)
        self.pending.set()

    def add_after(self, trees: tuple[str, ...], delay_s: float) -> None:
        """Make these trees dirty after `delay_s` seconds; without any, `pending` is set then. The earliest of several
        delays of the same trees counts."""
        self._timers.start(trees, delay_s)

    def _slice_changed(self, old: Slice | None, new: Slice | None) -> None:
        for slice in (old, new):
            if slice is not None:
                if slice.admission is not None:
                    self._nodes.add(queue_node(slice.admission.cluster_queue))
                self.add([self._quotas.tree_of(slice.local_queue)])
        if self._quotas.ledger.releases != self._releases:
            self._releases = self._quotas.ledger.releases
            self._room_grew()

    def _local_queue_changed(self, change: Change) -> None:
        for queue in (change.old, change.new):
            if queue is not None:
                self._node_changed(queue_node(queue["spec"].get("clusterQueue", "")), change)

    def _node_changed(self, node: str, change: Change) -> None:
        """Make the trees of a queue or a cohort dirty. A new or deleted
        queue also concerns the slices that wait without one."""
        self._nodes.add(node)
        if _spec(change.old) != _spec(change.new):
            self._edited.add(node)
        self.add([NOWHERE])

    def _cluster_changed(self, change: Change) -> None:
        """Make trees dirty when what a placement depends on has changed: heartbeats change the object every few
        seconds."""
        old, new = (WorkerCluster.from_manifest(m) if m else None for m in (change.old, change.new))
        if old is None or new is None or old.without_room() != new.without_room():
            self._clusters.add(_name(change))
            self.add(None)
        elif new.has_more_room_than(old):
            self._room_grew()

    def _room_grew(self) -> None:
        waiting = self._quotas.ledger.waiting_for_a_place()
        if trees := {self._quotas.tree_of(queue) for queue in waiting}:
            self.add(sorted(trees))


def _name(change: Change) -> str:
    manifest = change.new or change.old
    assert manifest is not None
    name: str = manifest["metadata"]["name"]
    return name


def _spec(manifest: Manifest | None) -> Manifest | None:
    return manifest.get("spec", {}) if manifest else None
