"""No admission takes a cluster past the room that it has told of: what its nodes have, less what others use there.

Exact but for the time that a report or a decision is on its way: it is enough that one of the reports of the last while
had the room, beside what the other chains have. What the chain itself had in that time it may have again: it may shrink
while it is admitted.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from simulation.versions import Versions
from simulation.violations import Violation
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.api.quantities import add, amounts
from slicebus.slices.quota.quota import FlavorResource, Usage, usage_by_chain
from slicebus.slices.workload.workload import FlavorName, Slice, SliceKey

Manifest = dict[str, Any]


class RoomRules:
    """Raises Violation for an admission that breaks the rule."""

    def __init__(self, slices: Mapping[SliceKey, Slice], *, is_shared: bool = False) -> None:
        """`is_shared`: several shards of the manager may give the last room of a cluster away at the same moment."""
        self._is_shared = is_shared
        self._slices = slices
        """Of the manager, as they are now."""
        self._versions: dict[str, Versions[Usage]] = {}
        self._held: dict[tuple[str, str], Versions[Usage]] = {}
        """What each chain has, by cluster and chain."""

    def see_cluster(self, change: HistoryEntry) -> None:
        """A WorkerCluster has changed."""
        said = self._versions.setdefault(change.key[3], Versions())
        said.say(asyncio.get_running_loop().time(), _room(change.object.get("status", {})))

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
        for room in self._versions[slice.cluster].lately(now_s):
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


def _room(status: Manifest) -> Usage:
    """What our jobs may use; nothing while the cluster has not said."""
    capacity, used, ours = (
        {f: amounts(told) for f, told in status.get(n, {}).items()} for n in ("capacity", "used", "ours")
    )
    return {
        (FlavorName(flavor), name): total
        - max(0, used.get(flavor, {}).get(name, 0) - ours.get(flavor, {}).get(name, 0))
        for flavor, totals in capacity.items()
        for name, total in totals.items()
    }


def _granted(cluster: str, slices: Iterable[Slice]) -> Usage:
    """What the chains on a cluster have."""
    there = [slice.without_observed() for slice in slices if slice.cluster == cluster and not slice.finished]
    total: Usage = {}
    for usage in usage_by_chain(there).values():
        total = add(total, usage)
    return total
