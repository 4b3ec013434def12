"""Knows which part of the fleet's jobs this process has, where several shards of the manager share them.

A tree of quota belongs to one shard. Each shard finds out which one by itself, by a hash of the tree's root. Every
ClusterQueue names the shard that has it, in an annotation that only this shard writes; without one it is the first
shard's. A shard decides about a tree while it has all of its ClusterQueues, and goes by the admissions of whoever had
them before (docs/decisions/0057).
"""

import hashlib
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache

import msgspec

from slicebus.decisions.table import Table
from slicebus.kube.cache import Cache
from slicebus.kube.readings import Readings
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.quota_trees import NOWHERE, Quotas
from slicebus.manager.state.settings import Shard
from slicebus.proto.messages import Manifest
from slicebus.proto.topology import MOST_SHARDS
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_number
from slicebus.slices.quota.cohorts import cohort_node, queue_node
from slicebus.slices.workload.workload import LocalQueueKey


class Shards:
    """The queues, trees and cohorts of this shard, by the cached objects. A manager that is alone has everything."""

    def __init__(
        self, held: Table[str, bool], adopted: Table[int, bool], *, quotas: Quotas, cluster_queues: Cache
    ) -> None:
        """`held` has the ClusterQueues of this shard whose admissions it knows, `adopted` the shards that no longer
        exist, and whose Leases the first one holds."""
        self.own = Shard()
        """This shard."""
        self.is_alone = True
        """Whether there is no other shard."""
        self._held = held
        self._adopted = adopted
        self._quotas = quotas
        self._claims = Readings(cluster_queues, claim_of)

    def become(self, shard: Shard) -> None:
        """Be this shard from now on."""
        self.own = shard
        self.is_alone = shard.count == 1

    @property
    def adopted(self) -> Set[int]:
        """The shards that no longer exist, and whose place this one has taken."""
        return self._adopted.keys()

    @property
    def orphaned(self) -> list[int]:
        """The other shards that ClusterQueues name and that no longer exist, in order."""
        return sorted({claim for claim in self._claims.values.values() if claim >= self.own.count} - self.adopted)

    def of_queue(self, local_queue: LocalQueueKey) -> int:
        """The shard that has the jobs of a LocalQueue."""
        return self._of_cluster_queue(self._quotas.cluster_queue_of(local_queue))

    def has_queue(self, local_queue: LocalQueueKey) -> bool:
        """Whether this shard has the jobs of a LocalQueue."""
        return self.is_alone or self.of_queue(local_queue) == self.own.index

    def has_cluster_queue(self, name: str) -> bool:
        """Whether this shard has a ClusterQueue."""
        return self.is_alone or self._of_cluster_queue(name) == self.own.index

    def has_cohort(self, name: str) -> bool:
        """Whether the tree of a cohort belongs to this shard."""
        if self.is_alone:
            return True
        node = cohort_node(name)
        return belongs_to(self._quotas.trees.get(node, node), self.own.count) == self.own.index

    def trees(self, only: Sequence[str] | None) -> Sequence[str] | None:
        """The trees that this shard decides about, of some; of all for None. Slices without a queue are the first
        shard's."""
        if self.is_alone:
            return only
        mine: set[str] = {NOWHERE} if self.own.index == 0 else set()
        others = set[str]()
        for name in self._quotas.cluster_queues:
            (mine if name in self._held else others).add(self._quotas.trees[queue_node(name)])
        return sorted((mine - others).intersection(mine if only is None else only))

    def misplaced(self) -> dict[str, int]:
        """The ClusterQueues that this shard has and whose tree belongs to another shard, with that shard."""
        if self.is_alone:
            return {}
        trees, (index, count) = self._quotas.trees, msgspec.structs.astuple(self.own)
        owners = {
            name: belongs_to(trees[queue_node(name)], count)
            for name in self._quotas.cluster_queues
            if self._of_cluster_queue(name) == index
        }
        return {name: shard for name, shard in owners.items() if shard != index}

    def unheld(self) -> list[str]:
        """The ClusterQueues that this shard was given, and does not decide about yet."""
        if self.is_alone:
            return []
        return [name for _, name in self._claims.values if name not in self._held and self.has_cluster_queue(name)]

    def _of_cluster_queue(self, name: str) -> int:
        claim = self._claims.values.get(("", name), 0)
        return 0 if claim in self._adopted else claim


def claim_of(cluster_queue: Manifest) -> int:
    """The shard that a ClusterQueue names; the first one where it names none that there can be."""
    claim = read_number(annotation(cluster_queue, api_names.SHARD_ANNOTATION))
    return claim if claim < MOST_SHARDS else 0


def shards_once(lease: Mapping[str, str]) -> int:
    """How many shards there were, by the annotations of the first one's Lease; 1 where these say no such number."""
    count = read_number(lease.get(api_names.SHARDS_ANNOTATION))
    return count if 0 < count <= MOST_SHARDS else 1


@lru_cache(maxsize=4096)
def belongs_to(root: str, count: int) -> int:
    """The shard of so many that a tree belongs to, by its root. With one shard more, only the trees that it gets
    move."""

    def weight(index: int) -> bytes:
        return hashlib.blake2b(f"{root}/{index}".encode(), digest_size=8).digest()

    return max(range(count), key=weight)
