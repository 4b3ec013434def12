"""Until when the pods run at most that a waiting slice gets the quota of, where their jobs are told before."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from slicebus.slices.api.kueue import Condition, EvictionReason
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.workload import Slice, SliceKey

_SHOWN = 3


class Notices:
    """The notices that run for slices that lose their pods."""

    def __init__(
        self,
        losing: Iterable[Slice],
        queues: Mapping[str, ClusterQueue],
        *,
        cap_s: float,
        told_s: Mapping[SliceKey, float] = {},
    ) -> None:
        """`cap_s` is the longest notice that is given, where a queue has no shorter one; `told_s` is that of
        `Snapshot`."""
        self._until: dict[SliceKey, str] = {}
        self._until_for: dict[tuple[SliceKey, str], str] = {}
        """By the UID of whom pods go for."""
        for slice in losing:
            deadlines = _of_shrink(slice)
            last = max(deadlines.values(), default="")
            if slice.evicting:
                # No part of its quota is free before the rest.
                queue = queues.get(slice.admission.cluster_queue) if slice.admission is not None else None
                most_s = queue.longest_notice_s(cap_s) if queue is not None else cap_s
                notice_s = told_s.get(slice.key, min(slice.elasticity.notice_s, most_s))
                last = max(last, _of_eviction(slice, notice_s)) if is_told_before(slice) else ""
            else:
                self._until_for |= {(slice.key, uid): until for uid, until in deadlines.items()}
            self._until[slice.key] = last

    def told(self, keys: Iterable[SliceKey], uid: str) -> str:
        """The last of the deadlines of these slices, as the rest of a sentence; empty where none is told. `uid` is that
        of whom they lose it for.

        A worker counts from the moment on at which it hears of it: one that hears late has a later deadline.
        """
        last = max((self._until_for.get((key, uid), self._until.get(key, "")) for key in keys), default="")
        return f", which have notice until {last}" if last else ""


def is_told_before(slice: Slice) -> bool:
    """Whether an evicted slice has the notice that its job asks for: its quota goes to somebody, or spends too much."""
    return is_for_budget(slice) or slice.condition(Condition.PREEMPTED)


def is_for_budget(slice: Slice) -> bool:
    """Whether a slice is evicted, or was, as a budget is spent."""
    return bool(slice.conditions.get(Condition.EVICTED, {}).get("reason") == EvictionReason.BUDGET_SPENT)


def named(keys: Iterable[SliceKey]) -> str:
    """The first of these slices."""
    ordered = sorted(keys)
    return f"{', '.join(ordered[:_SHOWN])}{' and others' * (len(ordered) > _SHOWN)}"


def _of_shrink(slice: Slice) -> dict[str, str]:
    """The deadlines of the pods that a slice loses, by the UID of whom they go for; empty ones where they go at once.
    No notice is over before an earlier one."""
    note, last, found = slice.reclaimed, "", dict[str, str]()
    if note is None or note.left_of(slice.held_counts) is None:
        return {}
    for taken in note.awaited_by:
        found[taken.uid] = last = max(last, _after(taken.at, taken.notice_s))
    return found


def _of_eviction(slice: Slice, notice_s: float) -> str:
    return _after(slice.conditions.get(Condition.EVICTED, {}).get("lastTransitionTime", ""), notice_s)


def _after(began: str, notice_s: float) -> str:
    """A deadline, RFC 3339; empty without notice."""
    if not (began and notice_s):
        return ""
    return f"{datetime.fromisoformat(began) + timedelta(seconds=notice_s):%Y-%m-%dT%H:%M:%SZ}"
