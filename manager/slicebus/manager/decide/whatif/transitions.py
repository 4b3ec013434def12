"""What becomes of a slice by a decision, without its Workload: the conditions are those that the manager writes."""

from collections.abc import Mapping

from msgspec.structs import replace

from slicebus.manager.decide.admission.admission_writes import (
    admission_findings,
    eviction_findings,
    waiting_finding,
)
from slicebus.manager.decide.admission.evictions import requeue_findings
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.admission.cycle import Admit, Evict, Shrink, Wait
from slicebus.slices.api.conditions import Finding, with_findings
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload import reclaimed
from slicebus.slices.workload.workload import Slice, SliceKey


def arrived(slice: Slice) -> Slice:
    """The slice as it came: after a gap of a recording it is seen first with quota."""
    if slice.admission is None:
        return slice
    return replace(slice, admission=None, admitted=False, evicted=False, cluster=None, conditions={})


def admitted(slice: Slice, decision: Admit, *, now: str) -> Slice:
    """The slice with quota and a cluster."""
    return replace(
        slice,
        admission=decision.admission,
        cluster=decision.cluster,
        admitted=True,
        evicted=False,
        conditions=_shown(slice, *admission_findings(slice, decision), now=now),
    )


def evicted(slice: Slice, decision: Evict, *, now: str) -> Slice:
    """The slice that loses its quota, and holds it until its pods are gone."""
    conditions = _shown(slice, *eviction_findings(decision), now=now)
    return replace(slice, admitted=False, evicted=True, conditions=conditions)


def given_back(slice: Slice, counts: Counts, *, now: str) -> Slice:
    """The evicted slice without quota, which waits again with these pods."""
    return replace(
        resized(slice.without_observed(), counts),
        admission=None,
        reclaimed=None,
        reclaimable={},
        replaces=None,
        queued_since="",
        conditions=_shown(slice, *requeue_findings(slice), now=now),
    )


def waiting(slice: Slice, decision: Wait, *, now: str) -> Slice:
    """The slice that shows why it waits."""
    return replace(slice, conditions=_shown(slice, waiting_finding(decision), now=now))


def shrinking(slice: Slice, decision: Shrink, wanted: Counts, *, now: str) -> Slice:
    """The slice that loses pods, and holds their quota until they are gone. `wanted`: the size that its job wants."""
    note = reclaimed.take_back(
        slice.reclaimed,
        wanted,
        decision.to,
        held=slice.held_counts,
        beneficiary=decision.beneficiary,
        is_alone=decision.is_alone,
        at=now,
        reason=decision.preemption,
        message=decision.message,
    )
    return replace(slice, reclaimed=note)


def shrunk(slice: Slice) -> Slice:
    """The slice whose lost pods are gone."""
    note = slice.reclaimed
    if note is None or (left := slice.shrinks_to) is None:
        return slice
    return replace(slice.at_most(left), reclaimed=replace(note, done=True))


def resized(slice: Slice, counts: Mapping[str, int]) -> Slice:
    """The slice with other pods by pod set."""
    pod_sets = tuple(replace(pods, count=counts.get(pods.name, pods.count)) for pods in slice.pod_sets)
    return replace(slice, pod_sets=pod_sets)


def replacement(holder: Slice, counts: Counts, *, number: int, now: str, queued_since: str = "") -> Slice:
    """The slice that waits with these pods to replace one with quota. `queued_since`: where it waits for pods that
    were taken back."""
    name = f"{holder.chain}-{number}"
    return replace(
        resized(holder, counts),
        name=name,
        uid=f"{holder.uid}-{number}",
        created=now,
        replaces=SliceKey(holder.key),
        admission=None,
        admitted=False,
        evicted=False,
        partial=holder.partial or bool(queued_since),
        queued_since=queued_since,
        conditions={},
        observed=None,
    )


def _shown(slice: Slice, *findings: Finding, now: str) -> dict[str, Manifest]:
    manifest = {"metadata": {}, "status": {"conditions": list(slice.conditions.values())}}
    return {condition["type"]: condition for condition in with_findings(manifest, *findings, now=now)}


def is_preempted(slice: Slice) -> bool:
    """Whether it was preempted or lost pods once, so that it is like no other slice."""
    return Condition.PREEMPTED in slice.conditions or slice.reclaimed is not None
