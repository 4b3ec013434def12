"""Says what a chain with quota may lose to a preemptor: some replicas of its pod sets, or everything.

A job that names a least size gives up pods down to that. It is evicted whole where that is not enough, or left alone.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from slicebus.slices.api.kueue import Condition, PreemptionReason
from slicebus.slices.quota.cohorts import Node
from slicebus.slices.quota.quota import FlavorResource, Usage
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
    """The replicas of one pod set that a chain can give up."""

    candidate: Candidate
    pod_set: str
    most: int
    """How many replicas, at least one."""
    step: int
    """The pods of a replica."""

    @property
    def order(self) -> tuple[int, tuple[int, ...], str]:
        """That of the candidate."""
        return self.candidate.order

    def left(self, replicas: int) -> int:
        """How many pods of the pod set are left without so many replicas. The first replica has fewer pods where the
        pod set has an incomplete one."""
        held = self.candidate.slice.held_counts[self.pod_set]
        return (-(-held // self.step) - replicas) * self.step if replicas else held


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
    for pod_set, held in slice.held_counts.items():
        step = slice.replica_sizes.get(pod_set, 1)
        floor = slice.elasticity.floor(pod_set, step=step)
        if floor is None or held <= floor:
            continue
        if _uses(slice, pod_set, short):
            yield Offer(candidate=candidate, pod_set=pod_set, most=-(-held // step) - floor // step, step=step)


def _uses(slice: Slice, pod_set: str, short: Collection[FlavorResource]) -> bool:
    """Whether the pods of a pod set hold any of what is short."""
    return slice.admission is not None and any(
        (flavor, resource) in short and assignment.usage.get(resource, 0) > 0
        for assignment in slice.admission.pod_sets
        if assignment.name == pod_set
        for resource, flavor in assignment.flavors.items()
    )


def with_all_pods(victim: Victim, short: Collection[FlavorResource]) -> Victim:
    """The victim with all the pods that it can give up, where it gives up any."""
    if victim.to is None:
        return victim
    to = victim.to | {offer.pod_set: offer.left(offer.most) for offer in offers(victim.candidate, short)}
    return msgspec.structs.replace(victim, to=to, freed=victim.candidate.freed(to))
