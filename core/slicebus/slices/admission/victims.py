"""Searches for the victims of a preemption, and remembers where there were none."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from slicebus.slices.admission.fair_preemption import fair
from slicebus.slices.admission.preemption import Preemptor, classical
from slicebus.slices.admission.reductions import Victim, with_all_pods
from slicebus.slices.admission.sharing import FairStrategy
from slicebus.slices.admission.trials import without
from slicebus.slices.admission.usage import QuotaUse
from slicebus.slices.placement.flavors import Mode
from slicebus.slices.quota.policies import Whom
from slicebus.slices.quota.quota import ClusterQueue, FlavorResource, Usage
from slicebus.slices.workload.workload import Slice

_REMEMBERED = 16
"""Most failed searches of a queue that are remembered."""


def no_victims(key: FlavorResource, need: int) -> tuple[Mode, int]:
    """Assess preemption where none is allowed."""
    return Mode.NO_CANDIDATES, 0


class Search:
    """Searches for victims in one cycle. Slices of a queue come by rank: a later one that needs as much fails too."""

    def __init__(self, use: QuotaUse, strategies: Sequence[FairStrategy]) -> None:
        """`strategies` are those of fair sharing; empty without it."""
        self._use = use
        self._strategies = strategies
        self._failed: dict[str, list[Usage]] = {}

    def victims(self, preemptor: Preemptor) -> list[Victim]:
        """The victims; none where they would not make room. The tree must not count the preemptor's own chain."""
        own = self._use.own(preemptor.queue.name, preemptor.slice)
        more = {key: need - own.get(key, 0) for key, need in preemptor.needs.items()}
        failures = self._failed.setdefault(preemptor.queue.name, [])
        if any(all(more.get(key, 0) >= need for key, need in failed.items()) for failed in failures):
            return []
        self._use.track_standing()
        victims = self._search(preemptor)
        # A slice that waits for what was taken back spares those whom a later one of its priority may preempt.
        if not victims and not preemptor.slice.restores and len(failures) < _REMEMBERED:
            failures.append(more)
        return victims

    def plans(self, preemptor: Preemptor) -> Iterator[list[Victim]]:
        """The victims, and where some of them give up pods, others to try after that: with all the pods that they can
        give, and evicted. A slice that chooses its flavors anew may not fit into just what it lacked in others."""
        victims = self.victims(preemptor)
        if victims:
            yield victims
        if any(victim.to is not None for victim in victims):
            yield [with_all_pods(victim, preemptor.short) for victim in victims]
            yield self._search(preemptor, whole=True)

    def _search(self, preemptor: Preemptor, *, whole: bool = False) -> list[Victim]:
        """`whole`: nobody is asked to give up pods."""
        holders = self._use.holders_of
        if self._strategies:
            return fair(preemptor, holders, self._strategies, whole=whole)
        return classical(preemptor, holders, whole=whole)

    def forget(self) -> None:
        """Forget the failed searches. Call it when there is more room than before."""
        self._failed.clear()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Remember no search while the context lasts: the tree is another one."""
        failed, self._failed = self._failed, {}
        try:
            yield
        finally:
            self._failed = failed

    def assess_preemption(
        self, slice: Slice, queue: ClusterQueue
    ) -> Callable[[FlavorResource, int], tuple[Mode, int]] | None:
        """A function that assesses preemption for an amount of one resource; None where the queue never preempts."""
        if queue.preemption.never:
            return None
        node = self._use.projected.queues[queue.name]

        def assess(key: FlavorResource, need: int) -> tuple[Mode, int]:
            distance, _ = node.distance(key, need)
            if all(len(group.flavors) == 1 for group in queue.resource_groups):
                # There is one flavor only: the search for all resources together decides.
                return Mode.PREEMPT, distance
            victims = self.victims(
                Preemptor(slice=slice, queue=queue, node=node, needs={key: need}, short=frozenset([key]))
            )
            if not victims:
                return Mode.NO_CANDIDATES, distance
            with without(victims):
                distance, _ = node.distance(key, need)
            is_own = any(victim.candidate.node is node for victim in victims)
            return Mode.PREEMPT if is_own else Mode.RECLAIM, distance

        return assess

    def may_preempt_to_borrow(self, queue: ClusterQueue) -> bool:
        """Whether a slice that would borrow may preempt."""
        policy = queue.preemption
        return policy.borrow is not Whom.NEVER or bool(self._strategies and policy.reclaim is not Whom.NEVER)
