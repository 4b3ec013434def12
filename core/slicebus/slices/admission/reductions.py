"""Says what a chain with quota may lose to a preemptor: some replicas of its pod sets, or everything.

A job that names a least size gives up pods down to that. It is evicted whole where that is not enough, or left alone.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from slicebus.slices.api.kueue import Condition, PreemptionReason
from slicebus.slices.placement.placement import Placer
from slicebus.slices.quota.cohorts import Node
from slicebus.slices.quota.quota import FlavorResource, Usage
from slicebus.slices.workload.observed import ObservedPods, pods_by_set
from slicebus.slices.workload.workload import Counts, Slice


def left_of(usage: Usage, holder: Slice, to: Mapping[str, int]) -> Usage:
    """What is left of the usage of a chain when its holder has at most so many pods of each pod set."""
    left = holder.at_most(to).usage
    return {key: min(amount, left.get(key, 0)) for key, amount in usage.items()}


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A chain that holds quota, without the pods that it is losing already."""

    slice: Slice
    """Its holder."""
    node: Node
    """The node of the queue whose quota it holds."""
    usage: Usage
    gives_pods: bool = True
    """Whether its queue lets it lose some of its pods."""

    @property
    def order(self) -> tuple[int, tuple[int, ...], str]:
        """The key to sort by: lower priority first, then the newest quota reservation."""
        reserved = self.slice.conditions.get(Condition.QUOTA_RESERVED, {})
        since = reserved.get("lastTransitionTime", "") if reserved.get("status") == "True" else ""
        return self.slice.priority, tuple(-ord(letter) for letter in since), self.slice.uid

    def freed(self, to: Mapping[str, int]) -> Usage:
        """What it gives back when it holds at most so many pods of each pod set."""
        left = left_of(self.usage, self.slice, to)
        return {key: more for key, amount in self.usage.items() if (more := amount - left[key]) > 0}


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas that a chain can give up of one pod set, or of several that have their size from one number."""

    candidate: Candidate
    pods: Mapping[str, int]
    """The pods of a replica, by pod set."""
    most: int
    """How many replicas, at least one."""

    @property
    def order(self) -> tuple[int, tuple[int, ...], str]:
        """That of the candidate."""
        return self.candidate.order

    @property
    def name(self) -> str:
        """The first pod set."""
        return next(iter(self.pods))

    def left(self, replicas: int) -> Counts:
        """How many pods of its pod sets are left without so many replicas. The first replica has fewer pods where a pod
        set has an incomplete one."""
        held = self.candidate.slice.held_counts
        return {
            name: (-(-held[name] // step) - replicas) * step if replicas else held[name]
            for name, step in self.pods.items()
        }


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """A chain that loses quota, and why it may be preempted."""

    candidate: Candidate
    reason: PreemptionReason
    freed: Usage
    """What it loses."""
    to: Counts | None = None
    """The pods by pod set that it keeps; None where it is evicted."""

    @property
    def left(self) -> Candidate:
        """The chain without what it loses. Only for one that is not evicted."""
        assert self.to is not None
        usage = {key: amount - self.freed.get(key, 0) for key, amount in self.candidate.usage.items()}
        return msgspec.structs.replace(self.candidate, slice=self.candidate.slice.at_most(self.to), usage=usage)


def offers(candidate: Candidate, short: Collection[FlavorResource]) -> Iterator[Offer]:
    """What a chain can give up of what is short, by pod set in the order of its spec; nothing for a job without a least
    size, or where its queue does not let it.

    Whole replicas, down to the least size and to no part of a gang.
    """
    slice = candidate.slice
    if not (candidate.gives_pods and slice.elastic and slice.elasticity.least):
        return
    for names in _resized_together(slice):
        pods = {name: slice.replica_sizes.get(name, 1) for name in names}
        most = min(_most(slice, name, step) for name, step in pods.items())
        if most > 0 and any(_uses(slice, name, short) for name in names):
            yield Offer(candidate=candidate, pods=pods, most=most)


def _resized_together(slice: Slice) -> list[tuple[str, ...]]:
    """The pod sets of a slice, those together that have their size from one number."""
    of = {name: group for group in slice.elasticity.together for name in group}
    return [*dict.fromkeys(of.get(name, (name,)) for name in slice.held_counts)]


def _most(slice: Slice, pod_set: str, step: int) -> int:
    """How many replicas a pod set can lose."""
    held, floor = slice.held_counts[pod_set], slice.elasticity.floor(pod_set, step=step)
    return -(-held // step) - floor // step if floor is not None and held > floor else 0


def _uses(slice: Slice, pod_set: str, short: Collection[FlavorResource]) -> bool:
    """Whether the pods of a pod set hold any of what is short: as they were admitted, or as they request where they
    run."""
    if slice.admission is None:
        return False
    pods = pods_by_set(slice.observed).get(pod_set, ObservedPods())
    return any(
        (flavor, resource) in short and (assignment.usage.get(resource, 0) > 0 or pods.requests.get(resource, 0) > 0)
        for assignment in slice.admission.pod_sets
        if assignment.name == pod_set
        for resource, flavor in (pods.flavors | assignment.flavors).items()
    )


def with_all_pods(victim: Victim, short: Collection[FlavorResource]) -> Victim:
    """The victim with all the pods that it can give up, where it gives up any."""
    if victim.to is None:
        return victim
    to = dict(victim.to)
    for offer in offers(victim.candidate, short):
        to |= offer.left(offer.most)
    return msgspec.structs.replace(victim, to=to, freed=victim.candidate.freed(to))


def note_lost(placer: Placer, victims: Sequence[Victim], *, times: int = 1) -> None:
    """Note what victims leave on their clusters; `times` -1 takes that back."""
    placer.evict((victim.candidate.slice for victim in victims if victim.to is None), times=times)
    shrunk = ((victim.candidate.slice, victim.left.slice) for victim in victims if victim.to is not None)
    placer.shrink(shrunk, times=times)
