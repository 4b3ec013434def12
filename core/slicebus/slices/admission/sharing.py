"""Orders slices and picks victims by fair sharing: by the share of a cohort's quota that each child borrows.

The share of a queue or cohort is what it borrows, as a part of what its parent could use, in thousandths, divided by
its weight. The resource with the largest part counts. Source: Kueue v0.19.2, `pkg/cache/scheduler` and
`pkg/scheduler/preemption/fairsharing`, and its KEP-1714.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from slicebus.slices.admission.preemption import Candidate, Claim, Holders, Preemptor, Trial, Victim, candidates, fits
from slicebus.slices.api.kueue import PreemptionReason
from slicebus.slices.quota.cohorts import Node
from slicebus.slices.quota.policies import Whom
from slicebus.slices.quota.quota import FlavorResource, Usage

LARGEST_SHARE = 2**63 - 1
"""The share that a status shows for a node that borrows and has weight 0."""


class FairStrategy(StrEnum):
    """When a queue with a larger share loses to the preemptor."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    """The preemptor's share after its admission is at most the other's after its loss."""
    INITIAL_SHARE = "LessThanInitialShare"
    """The preemptor's share after its admission is less than the other's now."""


class FairSharing(StrEnum):
    """The setting of fair sharing."""

    OFF = "off"
    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    INITIAL_SHARE = "LessThanInitialShare"
    BOTH = "LessThanOrEqualToFinalShare,LessThanInitialShare"
    """The second strategy is tried where the first makes no room."""

    @property
    def strategies(self) -> tuple[FairStrategy, ...]:
        """The strategies in the order of trial; none without fair sharing."""
        return () if self is FairSharing.OFF else tuple(FairStrategy(name) for name in self.split(","))


class Share(msgspec.Struct, frozen=True):
    """The dominant resource share of a node."""

    ratio: float
    """In thousandths, before the weight."""
    weight: float
    borrowed: frozenset[FlavorResource] = frozenset()
    """The resources of which it uses more than its quota."""

    @property
    def order(self) -> tuple[bool, float]:
        """The key to compare by: a borrower with weight 0 has a larger share than any other."""
        if self.weight == 0 and self.ratio > 0:
            return True, self.ratio
        return False, self.ratio / self.weight if self.ratio else 0.0

    @property
    def rounded(self) -> int:
        """The share as a status shows it."""
        is_unlimited, value = self.order
        return LARGEST_SHARE if is_unlimited else math.ceil(value)


def share(node: Node) -> Share:
    """The share of a queue or cohort in its parent; 0 for a root."""
    if node.parent is None:
        return Share(0.0, node.weight)
    borrowed: dict[str, int] = {}
    keys = set()
    for key, quota in node.quota.items():
        more = node.used(key) - quota
        if more > 0:
            keys.add(key)
            borrowed[key[1]] = borrowed.get(key[1], 0) + more
    if not borrowed:
        return Share(0.0, node.weight)
    lendable = node.parent.lendable()
    ratios = (more * 1000 / lendable[resource] for resource, more in borrowed.items() if lendable.get(resource, 0) > 0)
    return Share(max(ratios, default=0.0), node.weight, frozenset(keys))


class Head(msgspec.Struct, frozen=True):
    """The head of a queue: its first slice that could be admitted."""

    node: Node
    """The node of the queue."""
    needs: Usage
    """What it would use in addition."""
    claim: Claim
    rank: tuple[int, str, str]
    """Breaks ties: priority, then age."""


def fairest(heads: Mapping[str, Head]) -> str:
    """The queue whose head comes next, among the heads of one tree by queue name.

    From the queues up, each cohort puts forward the one with the smallest share after it was admitted.
    """
    shares = {name: _shares_with(head) for name, head in heads.items()}
    root = next(iter(heads.values())).node.root

    def winner(cohort: Node) -> str | None:
        contenders = [name for child in cohort.cohorts if (name := winner(child)) is not None]
        contenders += [queue.name for queue in cohort.queues if queue.name in heads]
        return min(contenders, key=lambda name: _order(heads[name], shares[name][cohort.name]), default=None)

    return winner(root) or root.name


def _shares_with(head: Head) -> dict[str, Share]:
    """The share of the child on the way to the queue, with the head admitted, by each cohort above."""
    head.node.use_all(head.needs)
    below, shares = head.node, {}
    for above in head.node.path():
        shares[above.name], below = share(below), above
    head.node.use_all(head.needs, times=-1)
    return shares


def _order(head: Head, after: Share) -> tuple[object, ...]:
    """The key to sort by: preemptors first, then who borrows nothing of its needs, then by share."""
    asked = {key for key, need in head.needs.items() if need > 0}
    return head.claim, bool(after.borrowed & asked), after.order, head.rank


def fair(preemptor: Preemptor, holders: Holders, strategies: Sequence[FairStrategy]) -> list[Victim]:
    """The victims with fair sharing; none where they would not make room."""
    by_queue = _candidates(preemptor, holders)
    if not any(by_queue.values()):
        return []
    node, needs, trial = preemptor.node, preemptor.needs, Trial()
    # Shares are compared with the preemptor admitted.
    node.use_all(needs)
    targets, tried = _Targets(node, by_queue), strategies[:1]
    refused = _first_pass(trial, preemptor, targets, strategies[0])
    if refused is not None and len(strategies) > 1:
        targets, tried = _Targets(node, refused), strategies
        refused = _second_pass(trial, preemptor, targets)
    node.use_all(needs, times=-1)
    if refused is None:
        trial.fill_back(lambda: fits(preemptor) and _stays_fair(trial, preemptor, targets, tried))
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


class _Targets:
    """Iterates over the queues to take victims from, each time the one with the largest share."""

    def __init__(self, preemptor: Node, candidates: Mapping[str, Iterable[Candidate]]) -> None:
        self.preemptor = preemptor
        self.left = {name: [*in_order][::-1] for name, in_order in candidates.items()}
        """By queue; the next candidate is the last."""
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

    def take(self, queue: Node) -> Candidate:
        """The next candidate of a queue."""
        return self.left[queue.name].pop()

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


def _first_pass(
    trial: Trial, preemptor: Preemptor, targets: _Targets, strategy: FairStrategy
) -> dict[str, list[Candidate]] | None:
    """Take victims until the preemptor fits. None when it does, else the candidates that the strategy spared."""
    refused: dict[str, list[Candidate]] = {}
    # A preemptor within its own quota reclaims it, whatever the shares.
    is_entitled = not any(map(preemptor.node.borrows, preemptor.short))
    for queue in targets:
        is_own = queue is preemptor.node
        if not _may_lose(queue, preemptor):
            targets.drop(queue)
            continue
        while targets.left[queue.name]:
            candidate = targets.take(queue)
            if not (is_own or is_entitled or _is_fair(targets, queue, candidate, strategy)):
                refused.setdefault(queue.name, []).append(candidate)
                continue
            trial.remove(candidate, _reason(is_own=is_own, is_entitled=is_entitled))
            if _fits_without_itself(preemptor):
                return None
            # Another queue may have the largest share now.
            break
    return refused


def _reason(*, is_own: bool, is_entitled: bool) -> PreemptionReason:
    if is_own:
        return PreemptionReason.IN_CLUSTER_QUEUE
    return PreemptionReason.IN_COHORT_RECLAMATION if is_entitled else PreemptionReason.IN_COHORT_FAIR_SHARING


def _second_pass(trial: Trial, preemptor: Preemptor, targets: _Targets) -> dict[str, list[Candidate]] | None:
    """One more victim from each queue with a larger share than the preemptor's. None when the preemptor fits then."""
    for queue in targets:
        candidate = targets.take(queue)
        if _may_lose(queue, preemptor) and _is_fair(targets, queue, candidate, FairStrategy.INITIAL_SHARE):
            trial.remove(candidate, PreemptionReason.IN_COHORT_FAIR_SHARING)
            if _fits_without_itself(preemptor):
                return None
        targets.drop(queue)
    return {}


def _may_lose(queue: Node, preemptor: Preemptor) -> bool:
    """Whether a queue exceeds its quota of what is short: otherwise it would reclaim that at once."""
    return queue is preemptor.node or queue.exceeds(preemptor.short)


def _is_fair(targets: _Targets, queue: Node, candidate: Candidate, strategy: FairStrategy) -> bool:
    mine, theirs = targets.halves(queue)
    if strategy is FairStrategy.INITIAL_SHARE:
        return share(mine).order < share(theirs).order
    queue.use_all(candidate.usage, times=-1)
    after = share(theirs).order
    queue.use_all(candidate.usage)
    return share(mine).order <= after


def _stays_fair(trial: Trial, preemptor: Preemptor, targets: _Targets, strategies: Sequence[FairStrategy]) -> bool:
    """Whether the victims of fair sharing still have the larger shares after some victims were spared.

    The preemptor's share was computed without the victims on its own side. With those spared it may be the larger one,
    and the others would reclaim their quota.
    """
    weighed = [victim for victim in trial.victims if victim.reason is PreemptionReason.IN_COHORT_FAIR_SHARING]
    preemptor.node.use_all(preemptor.needs)
    for victim in weighed:
        victim.candidate.node.use_all(victim.candidate.usage)
    is_fair = True
    for victim in weighed:
        queue, candidate = victim.candidate.node, victim.candidate
        is_fair = is_fair and any(_is_fair(targets, queue, candidate, strategy) for strategy in strategies)
        queue.use_all(candidate.usage, times=-1)
    preemptor.node.use_all(preemptor.needs, times=-1)
    return is_fair
