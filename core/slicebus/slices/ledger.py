"""Every slice, so that those which one part of the quota is decided by are found without looking at the others."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Generic, TypeVar

from slicebus.slices.quota import holders
from slicebus.slices.workload import Slice, SliceKey, oldest_first

LocalQueueKey = tuple[str, str]
"""Namespace and name."""
_Value = TypeVar("_Value")


class _Index(Generic[_Value]):
    """Keys of slices by something that many may have in common."""

    def __init__(self) -> None:
        self._keys: dict[_Value, dict[SliceKey, None]] = {}

    def add(self, value: _Value, key: SliceKey) -> None:
        self._keys.setdefault(value, {})[key] = None

    def remove(self, value: _Value, key: SliceKey) -> None:
        del self._keys[value][key]
        if not self._keys[value]:
            del self._keys[value]

    def of(self, value: _Value) -> Iterable[SliceKey]:
        return self._keys.get(value, ())

    def values(self) -> Iterable[_Value]:
        return self._keys


class Ledger:
    """Slices by key. `put` and `remove` are the only ways in which it changes."""

    def __init__(self) -> None:
        self._slices: dict[SliceKey, Slice] = {}
        self._chains: dict[str, tuple[Slice, ...]] = {}
        """Oldest first."""
        self._holding = _Index[str]()
        """By ClusterQueue."""
        self._waiting = _Index[LocalQueueKey]()
        self._load: Counter[str] = Counter()

    @property
    def slices(self) -> Mapping[SliceKey, Slice]:
        """All of them."""
        return self._slices

    @property
    def load(self) -> Counter[str]:
        """How many chains hold quota on each worker cluster."""
        return self._load

    def put(self, slice: Slice) -> None:
        """Take a slice in, in place of what it was."""
        old = self._slices.get(slice.key)
        if old is not None and _filed(old) == _filed(slice):
            self._slices[slice.key] = slice
            chain = self._chains[slice.chain_id]
            self._chains[slice.chain_id] = tuple(slice if each is old else each for each in chain)
            return
        self.remove(slice.key)
        self._count(slice.chain_id, -1)
        self._slices[slice.key] = slice
        self._chains[slice.chain_id] = tuple(oldest_first([*self.chain(slice.chain_id), slice]))
        if not slice.finished and slice.admission is not None:
            self._holding.add(slice.admission.cluster_queue, slice.key)
        elif not slice.finished:
            self._waiting.add((slice.namespace, slice.queue), slice.key)
        self._count(slice.chain_id, 1)

    def remove(self, key: SliceKey) -> None:
        """Forget a slice, if it is there."""
        slice = self._slices.get(key)
        if slice is None:
            return
        self._count(slice.chain_id, -1)
        del self._slices[key]
        left = tuple(each for each in self.chain(slice.chain_id) if each is not slice)
        if left:
            self._chains[slice.chain_id] = left
        else:
            del self._chains[slice.chain_id]
        if not slice.finished and slice.admission is not None:
            self._holding.remove(slice.admission.cluster_queue, key)
        elif not slice.finished:
            self._waiting.remove((slice.namespace, slice.queue), key)
        self._count(slice.chain_id, 1)

    def chain(self, chain_id: str) -> tuple[Slice, ...]:
        """The slices of one job, oldest first."""
        return self._chains.get(chain_id, ())

    def part(self, cluster_queues: Collection[str], local_queues: Iterable[LocalQueueKey]) -> list[Slice]:
        """Every chain that holds quota of one of the ClusterQueues or waits in one of the LocalQueues, whole."""
        keys = [key for name in cluster_queues for key in self._holding.of(name)]
        keys += [key for name in local_queues for key in self._waiting.of(name)]
        chains = dict.fromkeys(self._slices[key].chain_id for key in keys)
        return [slice for chain_id in chains for slice in self.chain(chain_id)]

    def waiting_in(self) -> Iterable[LocalQueueKey]:
        """Every LocalQueue that a slice names, there or not."""
        return self._waiting.values()

    def _count(self, chain_id: str, more: int) -> None:
        """Count the cluster where a chain holds quota now."""
        holder = holders(self.chain(chain_id)).get(chain_id)
        if holder is not None and holder.cluster:
            self._load[holder.cluster] += more


def _filed(slice: Slice) -> tuple[object, ...]:
    """Everything by which a slice is found, counted, or has its place in its chain."""
    holds = slice.admission.cluster_queue if slice.admission is not None else None
    place = slice.uid, slice.created, slice.replaces
    return slice.chain_id, slice.finished, holds, slice.cluster, slice.namespace, slice.queue, place
