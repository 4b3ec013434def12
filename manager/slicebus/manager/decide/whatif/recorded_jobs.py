"""What a recording tells of each job: when it came, the sizes that it wanted, its runs, and how they ended."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from slicebus.manager.decide.whatif.chronicle import Chronicle
from slicebus.manager.state.annotations import SizeRequest
from slicebus.manager.state.store import owner_ref
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.api.kueue import Condition, EvictionReason
from slicebus.slices.quota.quota import FlavorResource
from slicebus.slices.workload.chain import oldest_first
from slicebus.slices.workload.workload import Slice, SliceKey

_TO_OTHERS = frozenset({EvictionReason.PREEMPTED})
_DECIDED = frozenset(
    {
        EvictionReason.PREEMPTED,
        EvictionReason.CLUSTER_QUEUE_STOPPED,
        EvictionReason.LOCAL_QUEUE_STOPPED,
        EvictionReason.CLUSTER_DRAINED,
        EvictionReason.CLUSTER_LOST,
        EvictionReason.DEACTIVATED,
        EvictionReason.SUSPENDED,
    }
)
"""The evictions that follow from queues, clusters and users: a play decides them anew."""


class RunEnd(StrEnum):
    """How a run ended."""

    ENDED = "Ended"
    """The job ended, was deleted, or has had its time."""
    TAKEN = "Taken"
    """Its quota was taken for others, or its queue or cluster was stopped."""
    FAILED = "Failed"
    """It was evicted for what happened where it ran."""
    OPEN = "Open"
    """It goes on when the recording ends."""


class CountsAt(msgspec.Struct, frozen=True):
    """Pods by pod set at a moment: that somebody wanted, or that had ended."""

    at: float
    counts: Counts
    is_own: bool = False
    """Whether it is that of the job's own spec: at this size it comes back after an eviction."""


class RecordedRun(msgspec.Struct, kw_only=True):
    """The time that a job had quota."""

    began: float
    ended: float | None = None
    """When it had to go, or had ended."""
    end: RunEnd = RunEnd.OPEN
    pod_seconds: float = 0.0
    most_pods: int = 0
    gone_s: float | None = None
    """How long it kept its quota after it had to go; None where it had not to go."""
    ready_s: float | None = None
    """How long it took until its pods were ready; None where they were not."""


class RecordedJob(msgspec.Struct, kw_only=True):
    """One job. Unix times."""

    chain: str
    job: str
    arrived: float
    slice: Slice
    """Its first slice as it came; with quota where it had some when the span began."""
    priority_class: str = ""
    """Its WorkloadPriorityClass."""
    sizes: list[CountsAt] = []
    reclaimable: list[CountsAt] = []
    """Its pods that had ended for good while others of a run went on, and when."""
    shrinks_s: list[float] = []
    """How long it took each time until the pods were gone that it lost."""
    activity: list[tuple[float, bool]] = []
    """When its Workload was activated or deactivated."""
    ranks: list[tuple[float, int, str]] = []
    """When it got another priority or LocalQueue."""
    runs: list[RecordedRun] = []
    gone: float | None = None
    """When it had ended, or was deleted."""

    @property
    def run_s(self) -> float | None:
        """How long its last run took to its end; None where it has not ended in a run."""
        last = self.runs[-1] if self.runs else None
        return last.ended - last.began if last is not None and last.ended and last.end is RunEnd.ENDED else None

    def ran_s(self, until: float) -> float:
        """How long it has run at least without an end."""
        return max(((run.ended or until) - run.began for run in self.runs if run.end is not RunEnd.ENDED), default=0.0)


class _Chain(msgspec.Struct, kw_only=True):
    """The slices of one job, and what is followed of them."""

    recorded: RecordedJob
    slices: dict[SliceKey, Slice] = {}
    wanted: Counts = {}
    request: SizeRequest | None = None
    """What its worker asked for last."""
    holder: Slice | None = None
    evicted_at: float | None = None
    shrinks_since: float | None = None
    counted_to: float = 0.0
    """Up to when the pod-seconds of its run are counted."""


class RecordedWorkloads:
    """Reads Workloads as they change. Raises ValueError for one that no API server stores."""

    def __init__(self, chronicle: Chronicle, queue_of: Mapping[tuple[str, str], str]) -> None:
        """`queue_of`: the ClusterQueue of each LocalQueue, as it is now."""
        self.jobs: dict[str, RecordedJob] = {}
        """By chain, in order of arrival."""
        self.delays_s: dict[str, list[float]] = {}
        """How long evicted jobs took to give their quota back, and shrinking ones their pods, by cluster."""
        self._chronicle = chronicle
        self._queue_of = queue_of
        self._slices: dict[SliceKey, Slice] = {}
        self._chains: dict[str, _Chain] = {}

    def begin(self, workloads: Iterable[Manifest]) -> None:
        """Take the Workloads that are there when the span begins."""
        since, chains = self._chronicle.since, dict[str, list[tuple[Slice, Manifest]]]()
        for manifest in workloads:
            slice = Slice.from_manifest(manifest)
            if not slice.finished:
                chains.setdefault(slice.chain_id, []).append((slice, manifest))
        for chain_id, members in sorted(chains.items(), key=lambda item: min(each.created for each, _ in item[1])):
            slices = [slice for slice, _ in members]
            first = _holder(slices) or oldest_first(slices)[0]
            created = datetime.fromisoformat(first.created).timestamp() if first.created else since
            self._arrive(first, members[0][1], min(created, since))
            chain = self._chains[chain_id]
            for slice in slices:
                chain.slices[slice.key] = self._slices[slice.key] = slice
            if chain.holder is not None:
                reserved = chain.holder.conditions.get(Condition.QUOTA_RESERVED, {}).get("lastTransitionTime")
                began = datetime.fromisoformat(reserved).timestamp() if reserved else since
                chain.recorded.runs.append(RecordedRun(began=min(began, since)))
                chain.counted_to = since
                self._chronicle.use(chain_id, chain.holder.usage, since)
            pending = next((slice for slice in slices if slice.admission is None and slice.replaces), None)
            if pending is not None:
                self._want(chain, pending, since)

    def change(self, before: Manifest | None, after: Manifest | None, at: float) -> None:
        """Take one change of a Workload."""
        metadata = (after or before or {})["metadata"]
        key = SliceKey(f"{metadata['namespace']}/{metadata['name']}")
        old = self._slices.get(key)
        if after is None:
            if old is not None:
                del self._slices[key]
                self._take(old, None, at)
            return
        same = before is not None and old is not None and before.get("spec") is after.get("spec")
        slice = Slice.from_manifest(after, pod_sets=old.pod_sets if same and old is not None else ())
        self._slices[key] = slice
        if old is None and slice.finished:
            return
        if slice.chain_id not in self._chains or (
            self._chains[slice.chain_id].recorded.gone is not None and not slice.finished
        ):
            self._arrive(slice, after, at)
        chain, request = self._chains[slice.chain_id], SizeRequest.from_manifest(after)
        if request is not None and (chain.request is None or request.revision >= chain.request.revision):
            chain.request = request
        self._take(old, slice, at)

    def end(self, until: float) -> None:
        """Count what goes on when the span ends."""
        for chain in self._chains.values():
            self._count_pods(chain, until)

    def _arrive(self, slice: Slice, manifest: Manifest, at: float) -> None:
        ref = owner_ref(manifest)
        job = ref.key if ref is not None else f"Workload/{slice.key}"
        ref_class = manifest.get("spec", {}).get("priorityClassRef") or {}
        recorded = RecordedJob(
            chain=slice.chain_id, job=job, arrived=at, slice=slice, priority_class=ref_class.get("name", "")
        )
        self.jobs[slice.chain_id] = recorded
        holder = slice if slice.admission is not None and at <= self._chronicle.since else None
        self._chains[slice.chain_id] = _Chain(recorded=recorded, wanted=slice.counts, holder=holder)
        queue = self._queue_of.get(slice.local_queue, "")
        self._chronicle.arrive(slice.chain_id, job, queue, at, holds=holder is not None)

    def _take(self, old: Slice | None, slice: Slice | None, at: float) -> None:
        either = slice or old
        assert either is not None
        chain = self._chains.get(either.chain_id)
        if chain is None:
            return
        if slice is None or slice.finished:
            chain.slices.pop(either.key, None)
        else:
            chain.slices[slice.key] = slice
        before, holder = chain.holder, _holder(chain.slices.values())
        self._count_pods(chain, at)
        chain.holder = holder
        if before is None and holder is not None:
            chain.recorded.runs.append(RecordedRun(began=at))
            chain.evicted_at, chain.counted_to = None, at
        if slice is not None and slice.admission is not None and (old is None or old.admission is None):
            self._chronicle.admit(chain.recorded.chain, at)
        if holder is not None:
            self._follow(chain, before, holder, at)
        elif before is not None:
            self._end_run(chain, before, slice, at)
        if not chain.slices and chain.recorded.gone is None:
            chain.recorded.gone = at
            self._chronicle.leave(chain.recorded.chain, at)
        if slice is not None and not slice.finished:
            self._compare(chain, old, slice, at)

    def _follow(self, chain: _Chain, before: Slice | None, holder: Slice, at: float) -> None:
        """Note evictions and lost pods of a job with quota."""
        self._chronicle.use(chain.recorded.chain, holder.usage, at)
        if holder.evicted and chain.evicted_at is None:
            chain.evicted_at = at
            reason = _eviction_reason(holder)
            pods = sum(holder.held_counts.values())
            self._chronicle.lose(chain.recorded.chain, pods, to_others=reason in _TO_OTHERS)
        if holder.shrinks_to is not None and chain.shrinks_since is None:
            chain.shrinks_since = at
            pods = sum(holder.held_counts.values()) - sum(holder.shrinks_to.values())
            self._chronicle.lose(chain.recorded.chain, pods, to_others=True)
        elif holder.shrinks_to is None and chain.shrinks_since is not None:
            self.delays_s.setdefault(holder.cluster or "", []).append(at - chain.shrinks_since)
            chain.recorded.shrinks_s.append(at - chain.shrinks_since)
            chain.shrinks_since = None
        if before is not None and holder.reclaimable != before.reclaimable:
            chain.recorded.reclaimable.append(CountsAt(at, holder.reclaimable))
        run = chain.recorded.runs[-1]
        run.most_pods = max(run.most_pods, sum(holder.held_counts.values()))
        if run.ready_s is None and holder.condition(Condition.PODS_READY):
            run.ready_s = at - run.began

    def _end_run(self, chain: _Chain, before: Slice, slice: Slice | None, at: float) -> None:
        run = chain.recorded.runs[-1]
        if chain.evicted_at is None or slice is None or slice.finished:
            run.ended, run.end = chain.evicted_at or at, RunEnd.ENDED
            if chain.evicted_at is not None and _eviction_reason(before) in _DECIDED:
                run.end = RunEnd.TAKEN
        else:
            reason = _eviction_reason(before)
            run.gone_s = at - chain.evicted_at
            if run.ready_s is not None:
                self.delays_s.setdefault(before.cluster or "", []).append(at - chain.evicted_at)
            run.ended = chain.evicted_at
            run.end = RunEnd.TAKEN if reason in _DECIDED else RunEnd.FAILED
            if reason == EvictionReason.EXECUTION_TIME:
                run.end = RunEnd.ENDED
            self._chronicle.wait(chain.recorded.chain, at)
        self._chronicle.use(chain.recorded.chain, {}, at)
        chain.evicted_at = chain.shrinks_since = None

    def _compare(self, chain: _Chain, old: Slice | None, slice: Slice, at: float) -> None:
        """Note what users and autoscalers want of the job."""
        self._want(chain, slice, at)
        if old is None:
            return
        if old.active != slice.active and _eviction_reason(slice) != EvictionReason.EXECUTION_TIME:
            chain.recorded.activity.append((at, slice.active))
        if (old.priority, old.queue) != (slice.priority, slice.queue):
            chain.recorded.ranks.append((at, slice.priority, slice.queue))

    def _want(self, chain: _Chain, slice: Slice, at: float) -> None:
        """Note another size. What an eviction or lost pods make of it nobody has asked for."""
        newest = oldest_first(chain.slices.values())[-1] if chain.slices else slice
        if newest.key != slice.key or slice.evicted or slice.condition(Condition.EVICTED):
            return
        note, wanted = slice.reclaimed, slice.counts
        if note is not None and note.asked:
            wanted = {name: note.asked.get(name, count) for name, count in wanted.items()}
        elif note is not None and all(count <= note.before.get(name, 0) for name, count in wanted.items()):
            return
        if wanted != chain.wanted:
            chain.wanted = wanted
            asked = chain.request.counts if chain.request is not None and chain.request.asks_for_size else None
            chain.recorded.sizes.append(CountsAt(at, wanted, is_own=wanted != asked))

    def _count_pods(self, chain: _Chain, at: float) -> None:
        if chain.holder is not None and chain.recorded.runs:
            pods = sum(chain.holder.held_counts.values())
            chain.recorded.runs[-1].pod_seconds += pods * max(0.0, at - chain.counted_to)
            chain.counted_to = at


def quota_of(limits: Iterable[Mapping[FlavorResource, int]]) -> dict[FlavorResource, int]:
    """The sum of the nominal quota of queues and cohorts."""
    total = dict[FlavorResource, int]()
    for nominal in limits:
        for key, amount in nominal.items():
            total[key] = total.get(key, 0) + amount
    return total


def _holder(slices: Iterable[Slice]) -> Slice | None:
    holding = [slice for slice in slices if slice.admission is not None]
    return oldest_first(holding)[-1] if holding else None


def _eviction_reason(slice: Slice) -> str:
    reason: str = slice.conditions.get(Condition.EVICTED, {}).get("reason", "")
    return reason
