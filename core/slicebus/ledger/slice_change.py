"""Says when a change of one slice happened, and what it is: grants that end or begin, a resize, a loss of pods."""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from slicebus.ledger.facts import GrantFact, KillFact, LedgerAccount, ResizeFact, SliceFact, WaitFact
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.workload import Slice

_SECOND_MS = 1000
"""Times in objects are whole seconds."""


class Interruption(msgspec.Struct, frozen=True):
    """A span in which nothing was recorded; of no length where the books begin."""

    since_ms: int
    until_ms: int
    reason: str
    is_gap: bool = False
    """Whether records were lost. Else a leader ended, and another began."""

    @property
    def length_ms(self) -> int:
        """How long it was."""
        return self.until_ms - self.since_ms


class HeldSlice(msgspec.Struct):
    """What the books have open of one slice. It changes as they do."""

    fact: SliceFact
    version: int = 0
    grants: dict[str, GrantFact] = {}
    """By pod set."""
    wait: WaitFact | None = None
    cluster: str = ""
    """Where its pods run. Beside a Kueue a slice that replaces another does not say it at once."""
    evicted: bool = False
    spec: tuple[str, str] = ("", "")
    """What it asks for, and its pod templates, as text."""
    replaced: bool = False
    """Whether another slice of its job has taken over what it held."""


class WantedGrant(msgspec.Struct, frozen=True):
    """What the books have to have of one pod set."""

    pods: int
    account: LedgerAccount


class SliceChange:
    """A change of one slice, and when what it says happened."""

    def __init__(
        self, held: HeldSlice, slice: Slice, priority: str, at_ms: int, interruption: Interruption | None = None
    ) -> None:
        self.held = held
        self.slice = slice
        self.priority = priority
        self.at_ms = at_ms
        self.unknown_ms = 0
        """The most that is missing in the grants."""
        self._interruption = interruption
        self._stated_ms = _stated(slice, interruption) if interruption is not None else at_ms

    @property
    def begins_ms(self) -> int:
        """When what the slice holds now, or waits for, began."""
        return self.at_ms if self._stated_ms is None else self._stated_ms

    @property
    def goes_on(self) -> bool:
        """Whether a grant that is the same as before has never ended."""
        return self._interruption is None or self._stated_ms is None

    def ended(self, grant: GrantFact, *, is_lost: bool) -> GrantFact:
        """A grant that has ended. Where the slice does not say when, it is known up to the interruption."""
        until_ms = self._stated_ms
        if self._interruption is not None and not (is_lost and until_ms is not None):
            self.unknown_ms += grant.pods * max(0, self.begins_ms - self._interruption.since_ms)
            until_ms = self._interruption.since_ms
        return ended_at(grant, self.at_ms if until_ms is None else until_ms)

    def began_ms(self, grant: GrantFact | None, pods: int) -> int:
        """When a grant of so many pods began, after another one of the pod set or none."""
        if self._interruption is not None and self._stated_ms is None:
            self.unknown_ms += max(0, pods - (grant.pods if grant else 0)) * self._interruption.length_ms
        return self.begins_ms

    def resized(self, before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[ResizeFact]:
        """The resizes, by pod set."""
        for pod_set in sorted({*before, *after}):
            old, new = before.get(pod_set, 0), after.get(pod_set, 0)
            if old != new:
                yield ResizeFact(slice_uid=self.slice.uid, pod_set=pod_set, at_ms=self.begins_ms, before=old, after=new)

    def reclaimed(self, counts: Mapping[str, int]) -> Iterator[KillFact]:
        """The pods that were taken from the slice for others, while it keeps some. Opportunistic ones are no kills."""
        reclaimed = self.slice.reclaimed
        if reclaimed is None or reclaimed.grows:
            return
        for preemptor in [each for each in reclaimed.awaited_by if not each.opportunistic][-1:]:
            yield from self._taken(counts, reclaimed.message, preemptor.uid)

    def _taken(self, counts: Mapping[str, int], message: str, for_uid: str) -> Iterator[KillFact]:
        for pod_set, grant in self.held.grants.items():
            if (pods := grant.pods - counts.get(pod_set, 0)) > 0:
                yield KillFact(
                    slice_uid=self.slice.uid,
                    pod_set=pod_set,
                    at_ms=self.at_ms,
                    pods=pods,
                    reason=api_names.RECLAIMED,
                    message=message,
                    for_uid=for_uid,
                    account=grant.account,
                )


def ended_at(grant: GrantFact, at_ms: int) -> GrantFact:
    """A grant that ended then, and not before it began."""
    return msgspec.structs.replace(grant, until_ms=max(grant.since_ms, at_ms))


def sizes_of(slice: Slice) -> dict[str, int]:
    """The pods that a slice was admitted for, by pod set, also those that have ended."""
    admitted = slice.admission.counts if slice.admission is not None else {}
    return {name: min(count, admitted[name]) for name, count in slice.counts.items() if name in admitted}


def _stated(slice: Slice, interruption: Interruption) -> int | None:
    """When a slice got or lost its quota, as it says itself; None where that was before the interruption."""
    type = Condition.FINISHED if slice.finished else Condition.QUOTA_RESERVED
    at_ms = time_of(slice.conditions.get(type, {}))
    if at_ms <= interruption.since_ms - _SECOND_MS:
        return None
    return min(max(at_ms, interruption.since_ms), interruption.until_ms)


def time_of(condition: Manifest) -> int:
    """When a condition last changed; 0 where it does not say."""
    try:
        return round(datetime.fromisoformat(condition["lastTransitionTime"]).timestamp() * 1000)
    except (LookupError, TypeError, ValueError):
        return 0
