"""Until when the pods run at most that a waiting slice gets the quota of, where their jobs are told before."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from slicebus.slices.api.kueue import Condition, EvictionReason
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.workload import Slice, SliceKey

_SHOWN = 3


class Notices:
    """The notices that run for slices that lose their pods."""

    def __init__(self, losing: Iterable[Slice], queues: Mapping[str, ClusterQueue], *, cap_s: float) -> None:
        """`cap_s` is the longest notice that is given, where a queue has no shorter one."""

        def cap_of(slice: Slice) -> float:
            queue = queues.get(slice.admission.cluster_queue) if slice.admission is not None else None
            return queue.longest_notice_s(cap_s) if queue is not None else cap_s

        self._until = {slice.key: until for slice in losing if (until := _until(slice, cap_of(slice)))}

    def told(self, keys: Iterable[SliceKey]) -> str:
        """The last of the deadlines of these slices, as the rest of a sentence; empty where none is told.

        A worker counts from the moment on at which it hears of it: one that hears late has a later deadline.
        """
        last = max((self._until[key] for key in keys if key in self._until), default="")
        return f", which have notice until {last}" if last else ""


def is_told_before(slice: Slice) -> bool:
    """Whether an evicted slice has the notice that its job asks for: its quota goes to somebody, or spends too much."""
    is_for_budget = slice.conditions.get(Condition.EVICTED, {}).get("reason") == EvictionReason.BUDGET_SPENT
    return is_for_budget or slice.condition(Condition.PREEMPTED)


def named(keys: Iterable[SliceKey]) -> str:
    """The first of these slices."""
    ordered = sorted(keys)
    return f"{', '.join(ordered[:_SHOWN])}{' and others' * (len(ordered) > _SHOWN)}"


def _until(slice: Slice, cap_s: float) -> str:
    """The deadline of a slice, RFC 3339; empty for one without notice."""
    note, evicted = slice.reclaimed, slice.conditions.get(Condition.EVICTED, {})
    if slice.evicting and is_told_before(slice):
        began, notice_s = evicted.get("lastTransitionTime", ""), min(slice.elasticity.notice_s, cap_s)
    elif note is not None and slice.shrinks_to is not None:
        began, notice_s = note.at, note.notice_s
    else:
        return ""
    if not (began and notice_s):
        return ""
    return f"{datetime.fromisoformat(began) + timedelta(seconds=notice_s):%Y-%m-%dT%H:%M:%SZ}"
