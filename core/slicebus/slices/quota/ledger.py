"""Indexes all slices: it finds those that concern one part of the quota without reading the others."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED, Condition
from slicebus.slices.api.quantities import add
from slicebus.slices.quota.holdings import Holdings, Part, Sums
from slicebus.slices.quota.quota import FlavorResource, Usage, usage_by_chain
from slicebus.slices.workload.chain import oldest_first, place_of
from slicebus.slices.workload.workload import LocalQueueKey, Slice, SliceKey
from slicebus.slices.workload.workload_counts import WorkloadCounts

_Value = TypeVar("_Value")


class _Index(Generic[_Value]):
    """Finds the keys of slices by a value that they share."""

    def __init__(self) -> None:
        self._keys: dict[_Value, dict[SliceKey, None]] = {}

    def add(self, value: _Value, key: SliceKey) -> None:
        self._keys.setdefault(value, {})[key] = None

    def remove(self, value: _Value, key: SliceKey) -> None:
        del self._keys[value][key]
        if not self._keys[value]:
            del self._keys[value]

    def keys_of(self, value: _Value) -> Iterable[SliceKey]:
        return self._keys.get(value, ())

    def values(self) -> Iterable[_Value]:
        return self._keys


class Ledger:
    """Keeps all slices by key. Only `put` and `remove` change it."""

    def __init__(self) -> None:
        self._slices: dict[SliceKey, Slice] = {}
        self._chains: dict[str, tuple[Slice, ...]] = {}
        """Oldest first."""
        self._holding = _Index[str]()
        """By ClusterQueue."""
        self._holding_in = _Index[LocalQueueKey]()
        self._waiting = _Index[LocalQueueKey]()
        self._inactive: dict[SliceKey, None] = {}
        self._without_place = _Index[LocalQueueKey]()
        self._placed: dict[str, tuple[str, Usage]] = {}
        """By chain id: its cluster, and what it is granted there."""
        self._load: Counter[str] = Counter()
        self._granted: dict[str, Counter[FlavorResource]] = {}
        self._preempted: dict[SliceKey, None] = {}
        """The unfinished slices that were preempted or lost pods once."""
        self.workload_counts = WorkloadCounts()
        self.holdings = Holdings()
        self.used_in = Sums[tuple[LocalQueueKey, str]]()
        """What the slices of each LocalQueue use of each ClusterQueue."""
        self.releases = 0
        """Counts how often a chain has given back room on its cluster."""

    @property
    def slices(self) -> Mapping[SliceKey, Slice]:
        """Every slice by key."""
        return self._slices

    @property
    def load(self) -> Counter[str]:
        """How many chains hold quota on each worker cluster."""
        return self._load

    @property
    def granted(self) -> Mapping[str, Mapping[FlavorResource, int]]:
        """What all chains together are granted on each worker cluster."""
        return self._granted

    def put(self, slice: Slice) -> None:
        """Add or replace a slice."""
        old = self._slices.get(slice.key)
        self._slices[slice.key] = slice
        self._note(old, slice)
        if old is not None and _place_in_chain(old) == _place_in_chain(slice):
            chain = self._chains[slice.chain_id]
            self._chains[slice.chain_id] = tuple(slice if member is old else member for member in chain)
            if _filed(old) == _filed(slice):
                if self.holdings.holder(slice.chain_id) is old:
                    self.holdings.update(slice)
                return
        else:
            if old is not None:
                self._leave_chain(old)
            self._chains[slice.chain_id] = tuple(oldest_first([*self.chain(slice.chain_id), slice]))
        if old is not None:
            self._unfile(old)
        self._file(slice)
        self._settle(*(member for member in (slice, old) if member is not None))

    def remove(self, key: SliceKey) -> None:
        """Remove a slice, if it is there."""
        slice = self._slices.get(key)
        if slice is None:
            return
        self._note(slice, None)
        self._unfile(slice)
        self._leave_chain(slice)
        del self._slices[key]
        self._settle(slice)

    def chain(self, chain_id: str) -> tuple[Slice, ...]:
        """The slices of one job, oldest first."""
        return self._chains.get(chain_id, ())

    def part(
        self,
        cluster_queues: Container[str] | None,
        waiting: Iterable[Slice],
        *,
        stopped: Iterable[str] = (),
        stopped_in: Iterable[LocalQueueKey] = (),
    ) -> Part:
        """The slices that hold quota of these ClusterQueues, all that hold any for None, or are `waiting` for some.

        A chain that waits here belongs to the part with the quota that it holds elsewhere. The workloads of the
        ClusterQueues in `stopped` and of the LocalQueues in `stopped_in` are to lose their quota.
        """
        waiting = tuple(waiting)
        waiting_keys, waiting_chains = {slice.key for slice in waiting}, {slice.chain_id for slice in waiting}

        def belongs(slice: Slice) -> bool:
            if slice.admission is None:
                return slice.key in waiting_keys
            if cluster_queues is None or slice.chain_id in waiting_chains:
                return True
            return any(queue in cluster_queues for queue in self.holdings.used_by(slice.chain_id))

        to_stop = [
            *self._inactive,
            *(key for name in stopped for key in self._holding.keys_of(name)),
            *(key for name in stopped_in for key in self._holding_in.keys_of(name)),
        ]
        holding = (self._slices[key] for key in dict.fromkeys(to_stop))
        preempted = (self._slices[key] for key in self._preempted)
        return Part(
            waiting=waiting,
            holdings=self.holdings,
            leaving=tuple(filter(belongs, self.holdings.leaving)),
            to_stop=tuple(slice for slice in holding if slice.keeps_quota and belongs(slice)),
            preempted=tuple(filter(belongs, preempted)),
            shrinking=tuple(filter(belongs, self.holdings.shrinking)),
            opportunistic=tuple(filter(belongs, self.holdings.opportunistic)),
        )

    def waiting_in(self) -> Iterable[LocalQueueKey]:
        """Every LocalQueue that a waiting slice names, which may not exist."""
        return self._waiting.values()

    def waiting(self, local_queue: LocalQueueKey) -> Iterator[Slice]:
        """The slices that wait for quota in a LocalQueue."""
        return (self._slices[key] for key in self._waiting.keys_of(local_queue))

    def pending(self, uid: str, job_uid: str) -> Iterator[Slice]:
        """The Workload of this UID, and those of a job of that UID, that want quota. Looks at everybody who waits."""
        waiting = (slice for local_queue in self.waiting_in() for slice in self.waiting(local_queue))
        return (slice for slice in waiting if slice.pending and (slice.uid == uid or slice.job_uid == job_uid))

    @property
    def inactive(self) -> Collection[SliceKey]:
        """The deactivated slices that have not finished."""
        return self._inactive

    def waiting_for_a_place(self) -> Iterable[LocalQueueKey]:
        """Every LocalQueue of a slice that waits for room on a cluster."""
        return self._without_place.values()

    def _note(self, old: Slice | None, new: Slice | None) -> None:
        """Count a slice by what may change while its place and its quota stay."""
        self.workload_counts.change(old, new)
        if new is not None and not new.finished and (Condition.PREEMPTED in new.conditions or new.reclaimed):
            self._preempted[new.key] = None
        elif old is not None:
            self._preempted.pop(old.key, None)

    def _leave_chain(self, slice: Slice) -> None:
        remaining = tuple(oldest_first(member for member in self.chain(slice.chain_id) if member is not slice))
        if remaining:
            self._chains[slice.chain_id] = remaining
        else:
            del self._chains[slice.chain_id]

    def _file(self, slice: Slice) -> None:
        if not (slice.finished or slice.active):
            self._inactive[slice.key] = None
        for index, value in self._indexes_of(slice):
            index.add(value, slice.key)

    def _unfile(self, slice: Slice) -> None:
        self._inactive.pop(slice.key, None)
        for index, value in self._indexes_of(slice):
            index.remove(value, slice.key)

    def _indexes_of(self, slice: Slice) -> Iterator[tuple[_Index[Any], str | LocalQueueKey]]:
        """The indexes that have a slice, with its value in each."""
        if slice.finished:
            return
        if slice.admission is not None:
            yield self._holding, slice.admission.cluster_queue
            yield self._holding_in, slice.local_queue
            return
        yield self._waiting, slice.local_queue
        if _waits_for_a_place(slice):
            yield self._without_place, slice.local_queue

    def _settle(self, *changed: Slice) -> None:
        """Count the chains of changed slices anew."""
        for chain_id in dict.fromkeys(slice.chain_id for slice in changed if slice.admission is not None):
            self._settle_chain(chain_id)

    def _settle_chain(self, chain_id: str) -> None:
        """Count a chain where it holds quota now, and not where it held it before."""
        chain = self.chain(chain_id)
        self.holdings.settle(chain_id, chain)
        self.used_in.set(chain_id, _used_in(chain))
        holder = self.holdings.holder(chain_id)
        before, now = self._placed.pop(chain_id, None), None
        cluster = holder.cluster if holder is not None else None
        if holder is not None and cluster is None:
            cluster = place_of(chain)
        if cluster:
            now = self._placed[chain_id] = (cluster, _admitted(chain))
        if before is not None:
            self._load[before[0]] -= 1
            self._granted[before[0]].subtract(before[1])
            self.releases += now is None or _gives_back(before, now)
        if now is not None:
            self._load[now[0]] += 1
            self._granted.setdefault(now[0], Counter()).update(now[1])


def _place_in_chain(slice: Slice) -> tuple[object, ...]:
    """Everything that decides a slice's place in its chain."""
    return slice.chain_id, slice.created, slice.replaces, slice.uid


def _filed(slice: Slice) -> tuple[object, ...]:
    """Everything else that the index uses of a slice."""
    granted = (slice.admission, slice.unfinished_counts) if slice.admission is not None else _waits_for_a_place(slice)
    return slice.finished, slice.active, granted, slice.observed, slice.cluster, slice.local_queue


def _waits_for_a_place(slice: Slice) -> bool:
    # A slice whose victims have left may still wait until others leave room.
    reason = slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("reason")
    return reason in (api_names.NO_PLACE, WAITING_FOR_PREEMPTED)


def _admitted(chain: Iterable[Slice]) -> Usage:
    """What a chain was admitted with, in all its queues. What its pods request beyond that, their cluster reports as
    used."""
    usage: Usage = {}
    for amounts in usage_by_chain(slice.without_observed() for slice in chain if not slice.finished).values():
        usage = add(usage, amounts)
    return usage


def _used_in(chain: Iterable[Slice]) -> dict[tuple[LocalQueueKey, str], Usage]:
    """What the slices of a chain use, by LocalQueue and ClusterQueue."""
    members: dict[LocalQueueKey, list[Slice]] = {}
    for slice in chain:
        if not slice.finished:
            members.setdefault(slice.local_queue, []).append(slice)
    return {
        (local_queue, cluster_queue): usage
        for local_queue, slices in members.items()
        for (cluster_queue, _), usage in usage_by_chain(slices).items()
    }


def _gives_back(before: tuple[str, Usage], now: tuple[str, Usage]) -> bool:
    return before[0] != now[0] or any(now[1].get(key, 0) < amount for key, amount in before[1].items())
