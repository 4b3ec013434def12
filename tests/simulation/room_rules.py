"""No admission takes a cluster past the room that it has told of: what its nodes have, less what others use there.

Exact but for the time that a report is on its way: it is enough that one of those of the last while had the room.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from simulation.versions import Versions
from simulation.violations import Violation
from slicebus.sandbox.apiserver.store import Change
from slicebus.slices.quantities import add, amounts
from slicebus.slices.quota import Usage, usage_by_chain
from slicebus.slices.workload import FlavorName, Slice, SliceKey

Manifest = dict[str, Any]


class RoomRules:
    """Raises Violation for an admission that breaks the rule."""

    def __init__(self, slices: Mapping[SliceKey, Slice]) -> None:
        self._slices = slices
        """Of the manager, as they are now."""
        self._versions: dict[str, Versions[Usage | None]] = {}

    def see_cluster(self, change: Change) -> None:
        """A WorkerCluster has changed."""
        said = self._versions.setdefault(change.key[3], Versions())
        said.say(asyncio.get_running_loop().time(), _room(change.object.get("status", {})))

    def settle(self) -> None:
        """The manager knows what its clusters have said."""
        for versions in self._versions.values():
            versions.settle()

    def see_slice(self, slice: Slice, old: Slice | None) -> None:
        """A slice has changed: it may have been admitted."""
        if slice.admission is None or not slice.cluster or (old is not None and old.admission is not None):
            return
        others = [other for other in self._slices.values() if other.key != slice.key]
        before, after = _granted(slice.cluster, others), _granted(slice.cluster, [*others, slice])
        more = {key: amount for key, amount in after.items() if amount > before.get(key, 0)}
        past: Usage = {}
        for room in self._versions[slice.cluster].lately(asyncio.get_running_loop().time()):
            past = {} if room is None else {key: value for key, value in more.items() if value > room.get(key, 0)}
            if not past:
                return
        raise Violation(f"room: {slice.name} was admitted to {slice.cluster}, where {past} would be in use")


def _room(status: Manifest) -> Usage | None:
    """What our jobs may use; None while the cluster has not said."""
    if "ours" not in status:
        return None
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
    there = [slice for slice in slices if slice.cluster == cluster and not slice.finished]
    total: Usage = {}
    for usage in usage_by_chain(there).values():
        total = add(total, usage)
    return total
