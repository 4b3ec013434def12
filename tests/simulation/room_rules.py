"""No admission takes a cluster past the room that it has told of: what its nodes have, less what others use there.

Exact but for the time that a report or a decision is on its way: it is enough that one of the reports of the last while
had the room, beside what the other chains have. What the chain itself had in that time it may have again: it may shrink
while it is admitted. What its pods request beyond its admission a report may have as used by others: that is its own.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from simulation.versions import Versions
from simulation.violations import Violation
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.api.quantities import add, amounts
from slicebus.slices.quota.quota import FlavorResource, Usage, usage_by_chain
from slicebus.slices.workload.workload import FlavorName, Slice, SliceKey

Manifest = dict[str, Any]


class _Report(NamedTuple):
    """What a cluster has, and what others use of it; nothing while it has not said."""

    capacity: Usage
    others: Usage

    @classmethod
    def of(cls, status: Manifest) -> "_Report":
        """As its agent has told."""
        capacity, used, ours = (_told(status.get(name, {})) for name in ("capacity", "used", "ours"))
        return cls(capacity, {key: max(0, value - ours.get(key, 0)) for key, value in used.items()})

    def room(self, beyond: Usage) -> Usage:
        """What our jobs may use, for a chain whose pods request so much beyond its admission."""
        return {
            key: total - max(0, self.others.get(key, 0) - beyond.get(key, 0)) for key, total in self.capacity.items()
        }


class RoomRules:
    """Raises Violation for an admission that breaks the rule."""

    def __init__(self, slices: Mapping[SliceKey, Slice], *, is_shared: bool = False) -> None:
        """`is_shared`: several shards of the manager may give the last room of a cluster away at the same moment."""
        self._is_shared = is_shared
        self._slices = slices
        """Of the manager, as they are now."""
        self._versions: dict[str, Versions[_Report]] = {}
        self._held: dict[tuple[str, str], Versions[Usage]] = {}
        """What each chain has, by cluster and chain."""

    def see_cluster(self, change: HistoryEntry) -> None:
        """A WorkerCluster has changed."""
        said = self._versions.setdefault(change.key[3], Versions())
        said.say(asyncio.get_running_loop().time(), _Report.of(change.object.get("status", {})))

    def settle(self) -> None:
        """The manager knows what its clusters have said."""
        for versions in (*self._versions.values(), *self._held.values()):
            versions.settle()

    def see_slice(self, slice: Slice, old: Slice | None) -> None:
        """A slice has changed: it may have been admitted."""
        if not slice.cluster or (old is not None and old.admitted_usage == slice.admitted_usage):
            return
        now_s, others = asyncio.get_running_loop().time(), [*self._slices.values()]
        own = [slice, *(other for other in others if other.chain_id == slice.chain_id and other.key != slice.key)]
        had = self._hold(slice, _granted(slice.cluster, own), now_s)
        if self._is_shared or slice.admission is None or (old is not None and old.admission is not None):
            return
        rest = _granted(slice.cluster, (other for other in others if other.chain_id != slice.chain_id))
        after, past = add(rest, _granted(slice.cluster, own)), dict[FlavorResource, int]()
        beyond = _beyond(slice.cluster, own[1:])
        for report in self._versions[slice.cluster].lately(now_s):
            room = report.room(beyond)
            for usage in had:
                more = {key: amount for key, amount in after.items() if amount > add(rest, usage).get(key, 0)}
                past = {key: value for key, value in more.items() if value > room.get(key, 0)}
                if not past:
                    return
        raise Violation(f"room: {slice.name} was admitted to {slice.cluster}, where {past} would be in use")

    def _hold(self, slice: Slice, usage: Usage, now_s: float) -> list[Usage]:
        """Note what a chain has now. What it had lately, since it was there."""
        assert slice.cluster is not None
        chain = slice.cluster, slice.chain_id
        had = self._held[chain].lately(now_s) if chain in self._held else [{}]
        if usage:
            self._held.setdefault(chain, Versions()).say(now_s, usage)
        else:
            self._held.pop(chain, None)
        return had


def _told(by_flavor: Mapping[str, Mapping[str, str]]) -> Usage:
    return {
        (FlavorName(flavor), name): value for flavor, told in by_flavor.items() for name, value in amounts(told).items()
    }


def _granted(cluster: str, slices: Iterable[Slice]) -> Usage:
    """What the chains on a cluster have, as they were admitted."""
    return _used(cluster, [slice.without_observed() for slice in slices])


def _beyond(cluster: str, chain: Iterable[Slice]) -> Usage:
    """What the pods of a chain request beyond its admission."""
    members = [*chain]
    granted = _granted(cluster, members)
    return {key: value - granted.get(key, 0) for key, value in _used(cluster, members).items()}


def _used(cluster: str, slices: Iterable[Slice]) -> Usage:
    there = [slice for slice in slices if slice.cluster == cluster and not slice.finished]
    total: Usage = {}
    for usage in usage_by_chain(there).values():
        total = add(total, usage)
    return total
