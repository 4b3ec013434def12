"""Looks for the victims of a preemption, and not again where there were none."""

from collections.abc import Callable, Sequence

from slicebus.slices.flavors import Mode
from slicebus.slices.policies import Whom
from slicebus.slices.preemption import Preemptor, Victim, classical, without
from slicebus.slices.quota import ClusterQueue, FlavorResource, Usage
from slicebus.slices.sharing import FairStrategy, fair
from slicebus.slices.usage import QuotaUse
from slicebus.slices.workload import Slice

_REMEMBERED = 16
"""So many needs of a queue that nobody could make room for."""


class Search:
    """Of one cycle. Slices of a queue come in order, so what one could not get, a later one that asks more cannot."""

    def __init__(self, use: QuotaUse, strategies: Sequence[FairStrategy]) -> None:
        """With fair sharing where there are strategies."""
        self._account = use
        self._strategies = strategies
        self._in_vain: dict[str, list[Usage]] = {}

    def victims(self, preemptor: Preemptor) -> list[Victim]:
        """Who is to go. The preemptor's own chain is not counted in the tree meanwhile."""
        own = self._account.own(preemptor.queue.name, preemptor.slice)
        more = {key: need - own.get(key, 0) for key, need in preemptor.needs.items()}
        in_vain = self._in_vain.setdefault(preemptor.queue.name, [])
        if any(all(more.get(key, 0) >= need for key, need in failed.items()) for failed in in_vain):
            return []
        self._account.set_apart()
        holders = self._account.holders_of
        found = fair(preemptor, holders, self._strategies) if self._strategies else classical(preemptor, holders)
        if not found and len(in_vain) < _REMEMBERED:
            in_vain.append(more)
        return found

    def forget(self) -> None:
        """To be called when there is more room than there was."""
        self._in_vain.clear()

    def outlook(self, slice: Slice, queue: ClusterQueue) -> Callable[[FlavorResource, int], tuple[Mode, int]] | None:
        """How a slice could have so much of one resource by preemption, and from what distance then."""
        if queue.preemption.never:
            return None
        node = self._account.later.queues[queue.name]

        def look(key: FlavorResource, need: int) -> tuple[Mode, int]:
            distance, _ = node.distance(key, need)
            if all(len(group.flavors) == 1 for group in queue.resource_groups):
                # Nothing to choose from: the search for all resources together tells.
                return Mode.PREEMPT, distance
            found = self.victims(
                Preemptor(slice=slice, queue=queue, node=node, needs={key: need}, short=frozenset([key]))
            )
            if not found:
                return Mode.NO_CANDIDATES, distance
            with without(found):
                distance, _ = node.distance(key, need)
            is_own = any(victim.candidate.node is node for victim in found)
            return Mode.PREEMPT if is_own else Mode.RECLAIM, distance

        return look

    def may_preempt_to_borrow(self, queue: ClusterQueue) -> bool:
        """Whether somebody may lose quota for one that would use more than its queue's own."""
        policy = queue.preemption
        return policy.borrow is not Whom.NEVER or bool(self._strategies and policy.reclaim is not Whom.NEVER)
