"""Finds preemptions that would begin a preemption cycle: a waiting slice would preempt the preemptor at once.

A slice preempts another of its queue and borrows for it; one of another queue, which waits and found no victims before,
may preempt whoever borrows; and the first victim may take its own quota back from that one. Each step alone is what a
policy says, and the three would go round for ever. So would a preemptor that chooses other flavors when its victim is
gone, borrows for them, and may be preempted by that victim.
"""

from collections.abc import Callable, Sequence

import msgspec

from slicebus.slices.admission.preemption import Preemptor
from slicebus.slices.admission.reductions import Victim
from slicebus.slices.admission.usage import QuotaUse
from slicebus.slices.admission.victims import Search
from slicebus.slices.placement.flavors import Misfit, Mode, Nomination
from slicebus.slices.placement.placement import usage_of
from slicebus.slices.quota.policies import Whom
from slicebus.slices.quota.quota import ClusterQueue, Usage
from slicebus.slices.workload.workload import Slice

_REMEMBERED = 2
"""Most slices of a queue that are remembered, the first ones, and most victims that are asked about.

It is a bound: every preemption that borrows asks about them.
"""


class PreemptionConflicts:
    """Remembers the slices of a cycle that wait, may preempt in other queues, and found nobody to preempt."""

    def __init__(
        self,
        use: QuotaUse,
        search: Search,
        assess: Callable[[Slice], Nomination | Misfit],
        queue_of: Callable[[Slice], ClusterQueue | str],
    ) -> None:
        self._use = use
        self._search = search
        self._assess = assess
        self._queue_of = queue_of
        self._waiting: dict[str, list[tuple[Slice, ClusterQueue]]] = {}

    def remember(self, slice: Slice, queue: ClusterQueue) -> None:
        """Note a slice that waits."""
        waiting = self._waiting.setdefault(queue.name, [])
        if queue.preemption.reclaim is not Whom.NEVER and len(waiting) < _REMEMBERED:
            waiting.append((slice, queue))

    def knows_enough_of(self, queue: ClusterQueue) -> bool:
        """Whether no more slices of this queue would be remembered."""
        return queue.preemption.reclaim is Whom.NEVER or len(self._waiting.get(queue.name, ())) == _REMEMBERED

    def would_preempt(self, preemptor: Preemptor, needs: Usage, victims: Sequence[Victim]) -> bool:
        """Whether one of them, or a victim, would preempt this preemptor as soon as it has its victims' quota.

        `needs` is what the preemptor uses then: it may choose other flavors than those that it preempts for.
        """
        others = [slice for name, waiting in self._waiting.items() if name != preemptor.queue.name for slice in waiting]
        others += self._waiting_victims(preemptor.queue, victims)
        if not others:
            return False
        admitted = msgspec.structs.replace(preemptor, needs=needs)
        with self._use.as_if(admitted, victims) as borrows, self._search.apart():
            return borrows and any(self._preempts(*other, preemptor.slice) for other in others)

    def _waiting_victims(self, preempting: ClusterQueue, victims: Sequence[Victim]) -> list[tuple[Slice, ClusterQueue]]:
        """The victims in other queues that may preempt in turn, as they will wait."""
        waiting: list[tuple[Slice, ClusterQueue]] = []
        for victim in victims:
            slice = _as_it_waits(victim)
            queue = self._queue_of(slice)
            if isinstance(queue, str) or queue.name == preempting.name or queue.preemption.reclaim is Whom.NEVER:
                continue
            waiting.append((slice, queue))
            if len(waiting) == _REMEMBERED:
                break
        return waiting

    def _preempts(self, slice: Slice, queue: ClusterQueue, victim_slice: Slice) -> bool:
        nomination = self._assess(slice)
        if isinstance(nomination, Misfit) or nomination.mode not in (Mode.PREEMPT, Mode.RECLAIM):
            return False
        needs, node = usage_of(slice, nomination.admission), self._use.projected.queues[queue.name]
        with self._use.without(slice, queue.name):
            victims = self._search.victims(
                Preemptor(slice=slice, queue=queue, node=node, needs=needs, short=nomination.short)
            )
        return any(victim.candidate.slice is victim_slice for victim in victims)


def _as_it_waits(victim: Victim) -> Slice:
    """The slice that waits for what a victim has lost."""
    holder = victim.candidate.slice
    uid = f"{holder.uid}/back"
    if victim.to is None:
        # A chain of its own: what the victim holds now is left out already.
        return msgspec.structs.replace(holder, uid=uid, job_uid="", admission=None)
    return msgspec.structs.replace(
        holder, uid=uid, replaces=holder.key, admission=None, partial=True, queued_since=holder.ranked_since
    )
