"""Fair sharing: how much of what a cohort has to lend each part of it has borrowed, and who gets or loses by that.

The share of a queue or cohort is the largest part, over all resources, that what it uses past its own quota is of what
its parent could have, in thousandths, divided by its weight. Source: Kueue v0.19.2, `pkg/cache/scheduler` and
`pkg/scheduler/preemption/fairsharing`, and its KEP-1714.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from slicebus.slices.cohorts import Node
from slicebus.slices.kueue import PreemptionReason
from slicebus.slices.policies import Whom
from slicebus.slices.preemption import Candidate, Holders, Preemptor, Trial, Victim, candidates, fits
from slicebus.slices.quota import FlavorResource, Usage

LARGEST_SHARE = 2**63 - 1
"""What a status shows of a node that borrows and has no weight."""


class FairStrategy(StrEnum):
    """When somebody with a larger share loses to the preemptor."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    """The preemptor's share with what it asks is no more than the other's without what it loses."""
    INITIAL_SHARE = "LessThanInitialShare"
    """The preemptor's share with what it asks is less than the other's now."""


class FairSharing(StrEnum):
    """Whether shares decide, and how."""

    OFF = "off"
    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    INITIAL_SHARE = "LessThanInitialShare"
    BOTH = "LessThanOrEqualToFinalShare,LessThanInitialShare"
    """The second where the first makes no room."""

    @property
    def strategies(self) -> tuple[FairStrategy, ...]:
        """In the order in which they are tried; none without fair sharing."""
        return () if self is FairSharing.OFF else tuple(FairStrategy(name) for name in self.split(","))


class Share(msgspec.Struct, frozen=True):
    """The dominant resource share of a node."""

    ratio: float
    """In thousandths, before the weight."""
    weight: float
    borrowed: frozenset[FlavorResource] = frozenset()
    """What it uses past its quota."""

    @property
    def order(self) -> tuple[bool, float]:
        """To compare by: who borrows without a weight has a larger share than anybody with one."""
        if self.weight == 0 and self.ratio > 0:
            return True, self.ratio
        return False, self.ratio / self.weight if self.ratio else 0.0

    @property
    def rounded(self) -> int:
        """As a status shows it."""
        is_unlimited, value = self.order
        return LARGEST_SHARE if is_unlimited else math.ceil(value)


def share(node: Node) -> Share:
    """The share of a queue or cohort in its parent. A root has none."""
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
    """The first of a queue that could be admitted."""

    node: Node
    """Of the queue."""
    needs: Usage
    """What it would use more."""
    waits_for_preempted: bool
    rank: tuple[int, str, str]
    """Among those with the same share: priority, age."""


def fairest(heads: Mapping[str, Head]) -> str:
    """The one whose turn it is, of the heads of one tree by the name of their queue.

    From the queues up, each cohort puts forward the one with the smallest share after it was admitted.
    """
    shares = {name: _shares_with(head) for name, head in heads.items()}
    root = next(iter(heads.values())).node.root

    def winner(cohort: Node) -> str | None:
        found = [name for child in cohort.cohorts if (name := winner(child)) is not None]
        found += [queue.name for queue in cohort.queues if queue.name in heads]
        return min(found, key=lambda name: _turn(heads[name], shares[name][cohort.name]), default=None)

    return winner(root) or root.name


def _shares_with(head: Head) -> dict[str, Share]:
    """By cohort above: the share of its child on the way to the queue, with the head admitted."""
    head.node.use_all(head.needs)
    below, found = head.node, {}
    for above in head.node.path():
        found[above.name], below = share(below), above
    head.node.use_all(head.needs, times=-1)
    return found


def _turn(head: Head, after: Share) -> tuple[object, ...]:
    """Who waits for its victims, then who borrows nothing of what it needs, then by share."""
    asked = {key for key, need in head.needs.items() if need > 0}
    return not head.waits_for_preempted, bool(after.borrowed & asked), after.order, head.rank


def fair(preemptor: Preemptor, holders: Holders, strategies: Sequence[FairStrategy]) -> list[Victim]:
    """Who is preempted with fair sharing; nobody where that would not make room."""
    found = _candidates(preemptor, holders)
    if not any(found.values()):
        return []
    node, needs, trial = preemptor.node, preemptor.needs, Trial()
    # Shares are compared with the preemptor admitted.
    node.use_all(needs)
    targets, tried = _Targets(node, found), strategies[:1]
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
    """Whether the preemptor has room, while it is counted as admitted."""
    preemptor.node.use_all(preemptor.needs, times=-1)
    has_room = fits(preemptor)
    preemptor.node.use_all(preemptor.needs)
    return has_room


def _candidates(preemptor: Preemptor, holders: Holders) -> dict[str, list[Candidate]]:
    """By queue, each in order: in the own queue, and in every other of the tree that borrows."""
    policy, node, short = preemptor.queue.preemption, preemptor.node, preemptor.short
    found = {node.name: [*candidates(preemptor, node, holders, policy.within_queue)]}
    if node.parent is not None and policy.reclaim is not Whom.NEVER:
        for other in _queues(node.root):
            if other is not node and other.exceeds(short):
                found[other.name] = [*candidates(preemptor, other, holders, policy.reclaim)]
    return found


def _queues(cohort: Node) -> Iterator[Node]:
    for child in cohort.cohorts:
        yield from _queues(child)
    yield from cohort.queues


class _Targets:
    """The queues that lose something, each time the one whose part of the tree has the largest share."""

    def __init__(self, preemptor: Node, candidates: Mapping[str, Iterable[Candidate]]) -> None:
        self.preemptor = preemptor
        self.left = {name: [*found][::-1] for name, found in candidates.items()}
        """The next one last."""
        self._above = [*preemptor.path()]
        self._dropped: set[int] = set()

    def __iter__(self) -> Iterator[Node]:
        """Between two of them the caller takes a candidate of the first, or drops it."""
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
        """Look there no more."""
        self._dropped.add(id(node))

    def halves(self, queue: Node) -> tuple[Node, Node]:
        """The preemptor's and the queue's part of the tree, below the smallest cohort that has both."""
        theirs = queue
        for above in queue.path():
            if above in self._above:
                common = self._above.index(above)
                return self._above[common - 1] if common else self.preemptor, theirs
            theirs = above
        raise ValueError(f"{queue.name} is in another tree")

    def _next(self, cohort: Node) -> Node | None:
        """The queue to look at below a cohort; None where there is none, or one has to look again."""
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
        """Whether to look at a node; dropped for good where not."""
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
    """Take victims until the preemptor fits. None when it does, else those that the strategy left alone."""
    refused: dict[str, list[Candidate]] = {}
    # Whoever stays within its own quota may have it back, whatever the shares.
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
    """One more victim of each queue whose share is larger than the preemptor's will be. None when it fits then."""
    for queue in targets:
        candidate = targets.take(queue)
        if _may_lose(queue, preemptor) and _is_fair(targets, queue, candidate, FairStrategy.INITIAL_SHARE):
            trial.remove(candidate, PreemptionReason.IN_COHORT_FAIR_SHARING)
            if _fits_without_itself(preemptor):
                return None
        targets.drop(queue)
    return {}


def _may_lose(queue: Node, preemptor: Preemptor) -> bool:
    """Whether a queue has more than its own quota of what is missing: less than that it would take back at once."""
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
    """Whether those who lose by their share still do when some victims have been left out.

    The preemptor's part of the tree was weighed without what it was to lose. Where it keeps that, it may have the
    larger share, and they would take their quota back.
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
