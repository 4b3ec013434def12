"""Keeps the chains that hold quota, and the sums of what they use: a change costs the same however many there are."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, Self, TypeVar

import msgspec

from slicebus.slices.quota.quota import FlavorResource, Usage, holders, usage_by_chain
from slicebus.slices.workload.workload import Slice

_Key = TypeVar("_Key", bound=Hashable)


class Sums(Generic[_Key]):
    """Adds up what chains use of each key."""

    def __init__(self) -> None:
        self._by_chain: dict[str, Mapping[_Key, Usage]] = {}
        self._totals: dict[_Key, dict[FlavorResource, int]] = {}

    @property
    def totals(self) -> Mapping[_Key, Usage]:
        """The sums. Amounts that have come to 0 may be missing."""
        return self._totals

    def used_by(self, chain_id: str) -> Mapping[_Key, Usage]:
        """What one chain uses."""
        return self._by_chain.get(chain_id, {})

    def set(self, chain_id: str, uses: Mapping[_Key, Usage]) -> None:
        """Count a chain in place of what it used before."""
        before = self._by_chain.pop(chain_id, {})
        if uses:
            self._by_chain[chain_id] = uses
        for sign, counted in ((1, uses), (-1, before)):
            for key, usage in counted.items():
                self._add(key, usage, sign)

    def copy(self) -> Self:
        """A copy that changes apart from this one."""
        copy = type(self)()
        copy._by_chain = dict(self._by_chain)
        copy._totals = {key: dict(total) for key, total in self._totals.items()}
        return copy

    def _add(self, key: _Key, usage: Usage, sign: int) -> None:
        total = self._totals.setdefault(key, {})
        for flavor_resource, amount in usage.items():
            total[flavor_resource] = total.get(flavor_resource, 0) + sign * amount
            if not total[flavor_resource]:
                del total[flavor_resource]
        if not total:
            del self._totals[key]


class Holdings:
    """Keeps the holder of each chain that has quota, and what chains use of each ClusterQueue. `settle` changes it."""

    def __init__(self) -> None:
        self._held: dict[str, Slice] = {}
        self._by_queue: dict[str, dict[str, Slice]] = {}
        self._leaving: dict[str, Slice] = {}
        self._shrinking: dict[str, Slice] = {}
        self._opportunistic: dict[str, Slice] = {}
        self._used = Sums[str]()

    @classmethod
    def of(cls, slices: Iterable[Slice]) -> Self:
        """What these slices hold."""
        holdings, chains = cls(), dict[str, list[Slice]]()
        for slice in slices:
            chains.setdefault(slice.chain_id, []).append(slice)
        for chain_id, members in chains.items():
            holdings.settle(chain_id, members)
        return holdings

    @property
    def totals(self) -> Mapping[str, Usage]:
        """What all chains together use, by ClusterQueue."""
        return self._used.totals

    @property
    def leaving(self) -> Collection[Slice]:
        """The holders that are evicted or being deleted: their quota comes free."""
        return self._leaving.values()

    @property
    def shrinking(self) -> Collection[Slice]:
        """The holders that lose pods: a part of their quota comes free."""
        return self._shrinking.values()

    @property
    def opportunistic(self) -> Collection[Slice]:
        """The holders with pods that nobody asked for."""
        return self._opportunistic.values()

    def holder(self, chain_id: str) -> Slice | None:
        """The newest slice of a chain that holds quota."""
        return self._held.get(chain_id)

    def used_by(self, chain_id: str) -> Mapping[str, Usage]:
        """What a chain uses, by ClusterQueue."""
        return self._used.used_by(chain_id)

    def holders_in(self, queue: str) -> Collection[Slice]:
        """The holders that have quota of a ClusterQueue."""
        return self._by_queue.get(queue, {}).values()

    def settle(self, chain_id: str, slices: Collection[Slice]) -> None:
        """Count a chain by all its slices, in place of what it held before."""
        self._release(chain_id)
        used = {queue: usage for (queue, _), usage in usage_by_chain(_unfinished(slices)).items()}
        self._used.set(chain_id, used)
        if holder := holders(slices).get(chain_id):
            self.update(holder)

    def update(self, holder: Slice) -> None:
        """Replace the holder of a chain by another version of itself that uses the same."""
        assert holder.admission is not None
        self._held[holder.chain_id] = holder
        self._by_queue.setdefault(holder.admission.cluster_queue, {})[holder.chain_id] = holder
        for kept, belongs in (
            (self._leaving, holder.evicted or holder.deleting),
            (self._shrinking, holder.shrinks_to is not None),
            (self._opportunistic, holder.asked_counts is not None),
        ):
            if belongs:
                kept[holder.chain_id] = holder
            else:
                kept.pop(holder.chain_id, None)

    def copy(self) -> Self:
        """A copy that changes apart from this one."""
        copy = type(self)()
        copy._held = dict(self._held)
        copy._by_queue = {queue: dict(chains) for queue, chains in self._by_queue.items()}
        copy._leaving = dict(self._leaving)
        copy._shrinking = dict(self._shrinking)
        copy._opportunistic = dict(self._opportunistic)
        copy._used = self._used.copy()
        return copy

    def _release(self, chain_id: str) -> None:
        holder = self._held.pop(chain_id, None)
        if holder is None or holder.admission is None:
            return
        self._leaving.pop(chain_id, None)
        self._shrinking.pop(chain_id, None)
        self._opportunistic.pop(chain_id, None)
        chains = self._by_queue[holder.admission.cluster_queue]
        del chains[chain_id]
        if not chains:
            del self._by_queue[holder.admission.cluster_queue]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The slices of a part of the quota, as an admission cycle over it needs them. None of them has finished."""

    waiting: tuple[Slice, ...]
    """Those without quota."""
    holdings: Holdings
    """Of every chain, also in other parts."""
    leaving: tuple[Slice, ...]
    """The quota holders that are evicted or being deleted."""
    to_stop: tuple[Slice, ...]
    """Those with quota that are deactivated or in a stopped queue, and maybe others."""
    preempted: tuple[Slice, ...]
    """Those that were preempted or lost pods once, and maybe others."""
    shrinking: tuple[Slice, ...] = ()
    """The quota holders that lose pods, and are not among `leaving`."""
    opportunistic: tuple[Slice, ...] = ()
    """The quota holders with pods that nobody asked for."""

    @classmethod
    def of(cls, slices: Iterable[Slice]) -> Self:
        """The part that has exactly these slices."""
        members = tuple(_unfinished(slices))
        holdings = Holdings.of(members)
        return cls(
            waiting=tuple(slice for slice in members if slice.admission is None),
            holdings=holdings,
            leaving=tuple(holdings.leaving),
            to_stop=tuple(slice for slice in members if slice.keeps_quota),
            preempted=members,
            shrinking=tuple(holdings.shrinking),
            opportunistic=tuple(holdings.opportunistic),
        )


def _unfinished(slices: Iterable[Slice]) -> Iterable[Slice]:
    return (slice for slice in slices if not slice.finished)
