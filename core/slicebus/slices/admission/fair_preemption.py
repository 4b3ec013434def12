"""Picks the victims of a preemption by fair sharing: of the queue with the largest share first.

Source: Kueue v0.19.2, `pkg/scheduler/preemption/fairsharing`, and its KEP-1714. The pods that a job can give up are no
part of it: they are taken in the same order, replica by replica.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from slicebus.slices.admission.preemption import Holders, Preemptor, candidates, fits
from slicebus.slices.admission.reductions import Candidate, Offer, Victim, offers
from slicebus.slices.admission.sharing import FairStrategy, share
from slicebus.slices.admission.trials import Trial
from slicebus.slices.api.kueue import PreemptionReason
from slicebus.slices.quota.cohorts import Node
from slicebus.slices.quota.policies import Whom
from slicebus.slices.quota.quota import FlavorResource, Usage

_Target = TypeVar("_Target", bound=Candidate | Offer)


def fair(
    preemptor: Preemptor, holders: Holders, strategies: Sequence[FairStrategy], *, whole: bool = False
) -> list[Victim]:
    """The victims with fair sharing; none where they would not make room. `whole`: nobody gives up pods."""
    by_queue = _candidates(preemptor, holders)
    short = frozenset[FlavorResource]() if whole else preemptor.short
    offered = {
        name: [offer for candidate in in_order for offer in offers(candidate, short)]
        for name, in_order in by_queue.items()
    }
    if not any(by_queue.values()):
        return []
    victims = _search(Trial(short), preemptor, by_queue, offered, strategies)
    if not victims and any(offered.values()):
        # What pods are taken of first may make a share too small to take whole jobs of.
        victims = _search(Trial(short), preemptor, by_queue, {}, strategies)
    return victims


def _search(
    trial: Trial,
    preemptor: Preemptor,
    by_queue: Mapping[str, Sequence[Candidate]],
    offered: Mapping[str, Sequence[Offer]],
    strategies: Sequence[FairStrategy],
) -> list[Victim]:
    """The victims among these candidates, who may also give up what is offered."""
    node, needs = preemptor.node, preemptor.needs
    # Shares are compared with the preemptor admitted.
    node.use_all(needs)
    targets, tried = _Targets(node, by_queue), strategies[:1]
    shrinks = _Shrinks(trial, preemptor, offered)
    refused = _first_pass(trial, preemptor, targets, shrinks, strategies[0])
    if refused is not None and len(strategies) > 1:
        targets, tried = _Targets(node, refused), strategies
        shrinks.ask_again()
        refused = _second_pass(trial, preemptor, targets, shrinks)
    node.use_all(needs, times=-1)
    if refused is None:
        trial.trim(lambda: fits(preemptor) and _stays_fair(trial, preemptor, targets, tried))
    victims = trial.restore()
    return victims if refused is None else []


def _fits_without_itself(preemptor: Preemptor) -> bool:
    """Whether the preemptor fits, while the tree counts it as admitted."""
    preemptor.node.use_all(preemptor.needs, times=-1)
    has_room = fits(preemptor)
    preemptor.node.use_all(preemptor.needs)
    return has_room


def _candidates(preemptor: Preemptor, holders: Holders) -> dict[str, list[Candidate]]:
    """The candidates of the own queue and of every borrowing queue of the tree, by queue and in order."""
    policy, node, short = preemptor.queue.preemption, preemptor.node, preemptor.short
    by_queue = {node.name: [*candidates(preemptor, node, holders, policy.within_queue)]}
    if node.parent is not None and policy.reclaim is not Whom.NEVER:
        for other in _queues(node.root):
            if other is not node and other.exceeds(short):
                by_queue[other.name] = [*candidates(preemptor, other, holders, policy.reclaim)]
    return by_queue


def _queues(cohort: Node) -> Iterator[Node]:
    for child in cohort.cohorts:
        yield from _queues(child)
    yield from cohort.queues


class _Targets(Generic[_Target]):
    """Iterates over the queues to take victims from, each time the one with the largest share."""

    def __init__(self, preemptor: Node, targets: Mapping[str, Iterable[_Target]]) -> None:
        self.preemptor = preemptor
        self.left = {name: [*in_order][::-1] for name, in_order in targets.items()}
        """By queue; the next one is the last."""
        self._above = [*preemptor.path()]
        self._dropped: set[int] = set()

    def __iter__(self) -> Iterator[Node]:
        """Before it goes on, the caller takes a candidate from the queue, or drops the queue."""
        if not self._above:
            while self.left.get(self.preemptor.name) and id(self.preemptor) not in self._dropped:
                yield self.preemptor
            return
        root = self._above[-1]
        while id(root) not in self._dropped:
            target = self._next(root)
            if target is not None:
                yield target

    def take(self, queue: Node) -> _Target:
        """The next candidate of a queue."""
        return self.left[queue.name].pop()

    def next_priority(self, queue: Node) -> int:
        """The priority of the next candidate of a queue, which it has."""
        return self.left[queue.name][-1].order[0]

    def drop(self, node: Node) -> None:
        """Leave out a node from now on."""
        self._dropped.add(id(node))

    def halves(self, queue: Node) -> tuple[Node, Node]:
        """The two nodes below the smallest common cohort that lead to the preemptor and to the queue."""
        theirs = queue
        for above in queue.path():
            if above in self._above:
                common = self._above.index(above)
                return self._above[common - 1] if common else self.preemptor, theirs
            theirs = above
        raise ValueError(f"{queue.name} is in another tree")

    def _next(self, cohort: Node) -> Node | None:
        """The next queue below a cohort; None where there is none, or the caller has to ask again."""
        queues = [node for node in cohort.queues if self._counts(node, is_empty=not self.left.get(node.name))]
        cohorts = [node for node in cohort.cohorts if self._counts(node, is_empty=False)]
        if not queues and not cohorts:
            self.drop(cohort)
            return None
        orders = {id(node): share(node).order for node in (*queues, *cohorts)}
        largest = max(orders.values())
        # Among equals a cohort, as one can go on to its largest part; of queues the one with the first candidate.
        for child in cohorts:
            if orders[id(child)] == largest:
                return self._next(child)
        return min((node for node in queues if orders[id(node)] == largest), key=self._first)

    def _counts(self, node: Node, *, is_empty: bool) -> bool:
        """Whether a node can lose anything; drops it where not."""
        if id(node) in self._dropped:
            return False
        is_mine = node is self.preemptor or node in self._above
        if is_empty or not (is_mine or share(node).borrowed):
            self.drop(node)
            return False
        return True

    def _first(self, queue: Node) -> tuple[object, ...]:
        return queue is self.preemptor, self.left[queue.name][-1].order


class _Shrinks:
    """Takes pods of the jobs that can give some up, before whole jobs are evicted."""

    def __init__(self, trial: Trial, preemptor: Preemptor, offered: Mapping[str, Sequence[Offer]]) -> None:
        """`offered` has the offers of each queue in order."""
        self._trial = trial
        self._preemptor = preemptor
        self._is_entitled = _is_entitled(preemptor)
        self._left = {name: [*in_order] for name, in_order in offered.items()}
        self._asked: dict[str, list[Offer]] = {}

    def take(self, level: int, strategy: FairStrategy) -> bool:
        """Take pods of everybody up to a priority whom the strategy allows to lose some, from the lowest priority up;
        where the preemptor's queue wants pods first, of everybody. Whether any went.

        It ends as soon as the preemptor fits. Nobody is asked twice.
        """
        priorities = {offer.order[0] for in_order in self._left.values() for offer in in_order}
        is_any = False
        for priority in sorted(priorities):
            if priority > level and not self._preemptor.queue.pods_first:
                break
            if self._take_at(priority, strategy):
                is_any = True
                if _fits_without_itself(self._preemptor):
                    break
        return is_any

    def ask_again(self) -> None:
        """Ask those once more who were asked, by another strategy."""
        self._left, self._asked = self._asked, {}

    def _take_at(self, priority: int, strategy: FairStrategy) -> bool:
        """Take pods at one priority, each time of the queue with the largest share."""
        preemptor, is_any = self._preemptor, False
        turn: dict[str, list[Offer]] = {}
        for name, in_order in self._left.items():
            turn[name] = [offer for offer in in_order if offer.order[0] == priority]
            self._left[name] = [offer for offer in in_order if offer.order[0] != priority]
        targets = _Targets(preemptor.node, turn)
        for queue in targets:
            if not _may_lose(queue, preemptor):
                targets.drop(queue)
                continue
            offer = targets.take(queue)
            self._asked.setdefault(queue.name, []).append(offer)
            if self._shrink(targets, queue, offer, strategy):
                is_any = True
                if _fits_without_itself(preemptor):
                    break
        return is_any

    def _shrink(self, targets: _Targets[Offer], queue: Node, offer: Offer, strategy: FairStrategy) -> bool:
        """Take as many replicas as the strategy allows."""
        preemptor, is_own = self._preemptor, queue is self._preemptor.node
        is_free = is_own or self._is_entitled
        one = offer.candidate.freed(offer.left(1))

        def may_go_on() -> bool:
            return _may_lose(queue, preemptor) and (is_free or _is_fair(targets, queue, one, strategy))

        reason = _reason(is_own=is_own, is_entitled=self._is_entitled)
        return self._trial.shrink(offer, reason, may_go_on=may_go_on)


def _first_pass(
    trial: Trial, preemptor: Preemptor, targets: _Targets[Candidate], shrinks: _Shrinks, strategy: FairStrategy
) -> dict[str, list[Candidate]] | None:
    """Take victims until the preemptor fits. None when it does, else the candidates that the strategy spared."""
    refused: dict[str, list[Candidate]] = {}
    is_entitled = _is_entitled(preemptor)
    for queue in targets:
        is_own = queue is preemptor.node
        if not _may_lose(queue, preemptor):
            targets.drop(queue)
            continue
        while targets.left[queue.name]:
            if shrinks.take(targets.next_priority(queue), strategy):
                if _fits_without_itself(preemptor):
                    return None
                # Another queue may have the largest share now.
                break
            candidate = targets.take(queue)
            if not (is_own or is_entitled or _is_fair(targets, queue, trial.left_of(candidate), strategy)):
                refused.setdefault(queue.name, []).append(candidate)
                continue
            trial.evict(candidate, _reason(is_own=is_own, is_entitled=is_entitled))
            if _fits_without_itself(preemptor):
                return None
            break
    return refused


def _is_entitled(preemptor: Preemptor) -> bool:
    """Whether a preemptor that is counted as admitted is within its own quota of what is short: it reclaims that,
    whatever the shares."""
    return not any(map(preemptor.node.borrows, preemptor.short))


def _reason(*, is_own: bool, is_entitled: bool) -> PreemptionReason:
    if is_own:
        return PreemptionReason.IN_CLUSTER_QUEUE
    return PreemptionReason.IN_COHORT_RECLAMATION if is_entitled else PreemptionReason.IN_COHORT_FAIR_SHARING


def _second_pass(
    trial: Trial, preemptor: Preemptor, targets: _Targets[Candidate], shrinks: _Shrinks
) -> dict[str, list[Candidate]] | None:
    """One more victim from each queue with a larger share than the preemptor's. None when the preemptor fits then."""
    strategy = FairStrategy.INITIAL_SHARE
    for queue in targets:
        if shrinks.take(targets.next_priority(queue), strategy):
            if _fits_without_itself(preemptor):
                return None
            continue
        candidate = targets.take(queue)
        if _may_lose(queue, preemptor) and _is_fair(targets, queue, trial.left_of(candidate), strategy):
            trial.evict(candidate, PreemptionReason.IN_COHORT_FAIR_SHARING)
            if _fits_without_itself(preemptor):
                return None
        targets.drop(queue)
    return {}


def _may_lose(queue: Node, preemptor: Preemptor) -> bool:
    """Whether a queue exceeds its quota of what is short: otherwise it would reclaim that at once."""
    return queue is preemptor.node or queue.exceeds(preemptor.short)


def _is_fair(targets: _Targets[_Target], queue: Node, lost: Usage, strategy: FairStrategy) -> bool:
    mine, theirs = targets.halves(queue)
    if strategy is FairStrategy.INITIAL_SHARE:
        return share(mine).order < share(theirs).order
    queue.use_all(lost, times=-1)
    after = share(theirs).order
    queue.use_all(lost)
    return share(mine).order <= after


def _stays_fair(
    trial: Trial, preemptor: Preemptor, targets: _Targets[Candidate], strategies: Sequence[FairStrategy]
) -> bool:
    """Whether the victims of fair sharing still have the larger shares after some victims were spared.

    The preemptor's share was computed without the victims on its own side. With those spared it may be the larger one,
    and the others would reclaim their quota.
    """
    weighed = [victim for victim in trial.victims if victim.reason is PreemptionReason.IN_COHORT_FAIR_SHARING]
    preemptor.node.use_all(preemptor.needs)
    for victim in weighed:
        victim.candidate.node.use_all(victim.freed)
    is_fair = True
    for victim in weighed:
        queue, lost = victim.candidate.node, victim.freed
        is_fair = is_fair and any(_is_fair(targets, queue, lost, strategy) for strategy in strategies)
        queue.use_all(lost, times=-1)
    preemptor.node.use_all(preemptor.needs, times=-1)
    return is_fair
