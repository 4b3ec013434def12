"""Any scenario of arrivals, resizes, preemptions, endings and half-written cycles keeps the rules of admission."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slicebus.slices.admission.cycle import Admit, Evict, Shrink, Wait, cycle
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.quota.holdings import Part
from slicebus.slices.quota.quota import Cohort, Limits, LocalQueue, Usage, holders
from slicebus.slices.workload.chain import ChainCommand, CreateSlice, FinishSlice, SetCounts, plan
from slicebus.slices.workload.elasticity import RIGID, Elasticity
from slicebus.slices.workload.reclaimed import Reclaimed, take_back
from slicebus.slices.workload.workload import Slice
from support.usage import total_by_queue
from unit.slices.builders import a_flavor, a_pod_set, a_queue, a_slice, apply, loads, replacement, with_counts

QUEUES = {
    queue.name: queue
    for queue in (
        a_queue(
            "open",
            quotas={"spot": {"cpu": ("6", 3, 2), "memory": "9"}, "on-demand": {"cpu": "9", "memory": "20"}},
            cohortName="team",
            preemption={"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "Any"},
        ),
        a_queue(
            "strict",
            quotas={"spot": {"cpu": ("7", None, 4), "memory": "12"}},
            queueingStrategy="StrictFIFO",
            cohortName="team",
            preemption={
                "reclaimWithinCohort": "LowerPriority",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 1},
            },
        ),
        a_queue(
            "next",
            quotas={"spot": {"cpu": ("2", 4, None), "memory": "4"}},
            cohortName="org",
            preemption={"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
        ),
    )
}
COHORTS = (Cohort(name="team", parent="org"),)
CLUSTERS = tuple(Cluster(name=name, accepted=True, cordoned=False, connected=True) for name in ("a", "b"))
POD_SETS = {"head": {"cpu": 500, "memory": 2}, "small": {"cpu": 1000, "memory": 1}}
"""One pod's requests, by pod set."""

FEW = 5
"""Jobs at once: few enough to be resized again and again."""

counts = st.fixed_dictionaries({name: st.integers(0, 4) for name in POD_SETS})
picks = st.integers(0, FEW - 1)
written = st.lists(st.booleans(), max_size=4)
"""Which decisions of a cycle get written, in order; those after the end of the list do."""


arrival = st.tuples(st.just("arrive"), counts, st.integers(0, 2), st.sampled_from(["lq1", "lq2"]))
resize = st.tuples(st.just("resize"), picks, counts, st.sampled_from([9, 9, 9, 2, 1, 0]))
admission = st.tuples(st.just("admit"), st.one_of(st.just([]), written))
disturbance = st.one_of(
    st.tuples(st.just("leave"), picks),
    st.tuples(st.just("end"), picks),
    st.tuples(st.just("lose"), st.integers(0, 9)),
    st.tuples(st.just("repoint"), st.sampled_from(sorted(QUEUES))),
)
steps = st.integers(0, 19).flatmap(
    lambda kind: arrival if kind < 3 else resize if kind < 11 else admission if kind < 19 else disturbance
)


class Scenario:
    """Carries out the domain's decisions on slices in memory, not all of them and not at once, as a cluster does."""

    def __init__(self, fair_sharing: FairSharing = FairSharing.OFF, *, can_shrink: bool = False) -> None:
        """`can_shrink`: most jobs have a least size."""
        self.fair_sharing = fair_sharing
        self.can_shrink = can_shrink
        self.shrinks = 0
        self.baseline: dict[str, dict[str, int]] = {}
        self.slices: list[Slice] = []
        self.wanted: dict[str, dict[str, int]] = {}
        self.queues: dict[str, str] = {}
        self.points_to = {"lq1": "open", "lq2": "strict"}
        self.made = 0
        self.least: dict[str, int] = {}

    def play(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("arrive", wanted, priority, queue) if len(self.wanted) < FEW:
                job = f"j{self.made}"
                self.wanted[job], self.queues[job], self.baseline[job] = wanted, queue, wanted
                self._make(job, wanted, priority=priority)
            case ("resize", pick, wanted, commands) if self.wanted:
                # The first commands of the plan; the rest is for another time.
                self.wanted[self._job(pick)] = wanted
                self._follow(self._job(pick), commands)
            case ("admit", written):
                self.admit(written)
            case ("leave", pick) if self.wanted:
                self._leave(self._job(pick))
            case ("end", pick) if self.wanted:
                job = self._job(pick)
                del self.wanted[job]
                self.slices = [slice for slice in self.slices if slice.job_uid != job]
            case ("lose", pick) if self.slices:
                # Somebody deletes one Workload.
                del self.slices[pick % len(self.slices)]
            case ("repoint", queue):
                # A LocalQueue is made to stand for another ClusterQueue while jobs run.
                self.points_to["lq1"] = queue

    def admit(self, written: list[bool]) -> None:
        world = self._snapshot()
        decisions = cycle(world)
        assert decisions == cycle(world), "the same snapshot gives another answer"
        own = [decision for decision in decisions if not isinstance(decision, Evict | Shrink)]
        assert sorted(d.key for d in own) == sorted(slice.key for slice in self.slices if slice.pending)
        assert all(decision.message for decision in decisions if isinstance(decision, Wait))
        for admit in (decision for decision in decisions if isinstance(decision, Admit)):
            self._check_continuity(admit)
        kept = [*written, *[True] * len(decisions)]
        carried_out = [d for d, is_kept in zip(decisions, kept, strict=False) if is_kept]
        self.slices = apply(self.slices, *(d for d in carried_out if isinstance(d, Admit)))
        for decision in carried_out:
            slice = next(slice for slice in self.slices if slice.key == decision.key)
            if isinstance(decision, Wait):
                reserved = {"status": "False", "reason": decision.reason, "message": decision.message}
                conditions = slice.conditions | {"QuotaReserved": reserved}
                self._change(slice, msgspec.structs.replace(slice, conditions=conditions))
            elif isinstance(decision, Evict):
                self._evict(slice, decision)
            elif isinstance(decision, Shrink):
                self._shrink(slice, decision)

    def _shrink(self, slice: Slice, decision: Shrink) -> None:
        """The job is told, and its pods are still there."""
        assert holders(self.slices)[slice.chain_id] is slice, "only who stands for a chain shrinks"
        least = slice.elasticity.least.get("small", slice.held_counts["small"])
        assert least <= decision.to["small"] <= slice.held_counts["small"]
        assert decision.to["head"] == slice.held_counts["head"]
        self.shrinks += 1
        note = take_back(
            slice.reclaimed,
            self.wanted[slice.job_uid],
            decision.to,
            beneficiary=decision.beneficiary,
            at="2026-01-01T00:00:00Z",
            reason=decision.preemption,
            message=decision.message,
        )
        self._change(slice, msgspec.structs.replace(slice, reclaimed=note))

    def _evict(self, slice: Slice, decision: Evict) -> None:
        """The chain stops, its quota stays with it; what else there is of it ends."""
        assert holders(self.slices)[slice.chain_id] is slice, "only who stands for a chain is evicted"
        assert not slice.evicted
        conditions = slice.conditions | {"Preempted": {"status": "True", "message": decision.message}}
        self._change(slice, msgspec.structs.replace(slice, evicted=True, conditions=conditions))
        self.wanted[slice.job_uid] = self.baseline[slice.job_uid]
        for other in self.slices:
            if other.job_uid == slice.job_uid and other.key != slice.key and not other.finished:
                self._change(other, msgspec.structs.replace(other, finished=True, admitted=False))

    def _leave(self, job: str) -> None:
        """The worker has no pod of an evicted job left: it comes back at the size that it began with. Of a job that
        shrinks it has none left that was taken back."""
        for slice in self.slices:
            if slice.job_uid == job and slice.shrinks_to is not None and slice.reclaimed is not None:
                less = with_counts(slice, **slice.shrinks_to)
                self._change(slice, msgspec.structs.replace(less, reclaimed=done(slice.reclaimed)))
            if slice.job_uid == job and slice.evicting:
                shrunk = with_counts(slice, **self.baseline[job])
                fields: dict[str, Any] = {"admission": None, "admitted": False, "queued_since": "", "reclaimed": None}
                self._change(slice, msgspec.structs.replace(shrunk, **fields))

    def use_never_passes_the_quota(self) -> None:
        """All queues together stay within the quota, none borrows more than it may or what another keeps to itself."""
        use = self._use()
        keys = {key for queue in QUEUES.values() for key in queue.nominal}
        for key in keys:
            quota = sum(queue.nominal.get(key, 0) for queue in QUEUES.values())
            total = sum(used.get(key, 0) for used in use.values())
            assert total <= quota, f"{key}"
            for name, queue in QUEUES.items():
                limits, used = queue.limits.get(key, Limits()), use.get(name, {}).get(key, 0)
                if limits.borrowing is not None:
                    assert used <= limits.nominal + limits.borrowing, f"{name} borrows too much {key}"
                if limits.lending is not None:
                    kept = limits.nominal - limits.lending
                    assert total + max(0, kept - used) <= quota, f"{name} lends too much {key}"

    def rest(self) -> None:
        """Left alone, everything comes to rest; then nothing waits that has room."""
        for _ in range(10 * len(self.slices) + 10):
            before = self.slices
            self.admit([])
            self.use_never_passes_the_quota()
            for job in self.wanted:
                self._leave(job)
            for job in self.wanted:
                self._follow(job)
            self.use_never_passes_the_quota()
            if self.slices == before:
                break
        else:
            pytest.fail("the story does not come to rest")
        for job, wanted in self.wanted.items():
            mine = [slice for slice in self.slices if slice.job_uid == job and not slice.finished]
            assert mine[-1].counts == wanted
        assert not [d for d in cycle(self._snapshot()) if isinstance(d, Admit)]
        self._check_that_an_empty_queue_lets_everything_in()

    def _check_that_an_empty_queue_lets_everything_in(self) -> None:
        """A first slice that waits and could ever fit does so because of others."""
        for slice in [slice for slice in self.slices if slice.pending]:
            if not any(other.chain_id == slice.chain_id and other.admission for other in self.slices):
                alone = msgspec.structs.replace(self._snapshot(), part=Part.of([slice]))
                [decision] = cycle(alone)
                assert isinstance(decision, Admit) or "maximum capacity" in decision.message

    def _job(self, pick: int) -> str:
        return sorted(self.wanted)[pick % len(self.wanted)]

    def _follow(self, job: str, commands: int | None = None) -> None:
        if any(slice.job_uid == job and (slice.evicting or slice.shrinks_to) for slice in self.slices):
            return
        planned = plan([slice for slice in self.slices if slice.job_uid == job], self.wanted[job])
        for command in planned[:commands]:
            self._carry_out(job, command)

    def _snapshot(self) -> Snapshot:
        local_queues = {
            ("team", name): LocalQueue(namespace="team", name=name, cluster_queue=queue, held=False)
            for name, queue in self.points_to.items()
        }
        return Snapshot(
            cluster_queues=QUEUES,
            cohorts=COHORTS,
            local_queues=local_queues,
            flavors={name: a_flavor(name) for name in ("spot", "on-demand")},
            namespaces={},
            part=Part.of(self.slices),
            clusters=CLUSTERS,
            load=loads(self.slices),
            fair_sharing=self.fair_sharing,
        )

    def _carry_out(self, job: str, command: ChainCommand) -> None:
        match command:
            case CreateSlice(counts=wanted, replaces=replaces):
                old = next((slice for slice in self.slices if slice.key == replaces), None)
                self._make(job, wanted, old=old)
            case SetCounts(slice=slice, counts=wanted):
                self._change(slice, with_counts(slice, **wanted))
            case FinishSlice(slice=slice):
                self._change(slice, msgspec.structs.replace(slice, finished=True, admitted=False))

    def _make(self, job: str, wanted: dict[str, int], *, old: Slice | None = None, priority: int = 0) -> None:
        self.made += 1
        fields: dict[str, Any] = {
            "job_uid": job,
            "queue": self.queues[job],
            "priority": old.priority if old else priority,
            "partial": self.made % 2 == 0,
            # Several slices within one second.
            "created": f"{self.made // 3:04}",
            "pod_sets": tuple(a_pod_set(name, wanted[name], requests) for name, requests in POD_SETS.items()),
        }
        if self.can_shrink:
            least = self.least.setdefault(job, self.made % 4)
            fields["elasticity"] = Elasticity(least={"small": least}) if least else RIGID
        if old is not None and old.reclaimed is not None:
            fields["reclaimed"] = done(old.reclaimed)
            is_former = all(count <= old.reclaimed.before[name] for name, count in wanted.items())
            fields |= {"queued_since": old.ranked_since, "partial": True} if is_former else {}
        name = f"s{self.made:03}"
        self.slices.append(replacement(old, name, 0, **fields) if old else a_slice(name, **fields))

    def _change(self, old: Slice, new: Slice) -> None:
        self.slices = [new if slice.key == old.key else slice for slice in self.slices]

    def _check_continuity(self, admit: Admit) -> None:
        """A chain that runs keeps its cluster, and the flavors of every pod set that has had pods."""
        new = next(slice for slice in self.slices if slice.key == admit.key)
        old = next((slice for slice in self.slices if slice.key == new.replaces and not slice.finished), None)
        if old is not None and old.admission is not None:
            assert admit.cluster == old.cluster
            for name in POD_SETS:
                kept = old.admission.flavors_of(name)
                assert bool(kept) == old.admission.is_placed(name)
                assert not kept or admit.admission.flavors_of(name) == kept

    def _use(self) -> Mapping[str, Usage]:
        """What is used of each queue, from the pods that may run: of each chain the slice that uses most counts."""
        chains: dict[tuple[str, str], dict[Any, int]] = {}
        for slice in self.slices:
            if slice.admission is None or slice.finished:
                continue
            mine: dict[Any, int] = {}
            for name, count in slice.admission.counts.items():
                granted = min(count, slice.counts[name])
                for resource, flavor in slice.admission.flavors_of(name).items():
                    key = flavor, resource
                    mine[key] = mine.get(key, 0) + granted * POD_SETS[name][resource]
            most = chains.setdefault((slice.admission.cluster_queue, slice.job_uid), {})
            most |= {key: max(value, most.get(key, 0)) for key, value in mine.items()}
        return total_by_queue(chains)


def done(note: Reclaimed) -> Reclaimed:
    return msgspec.structs.replace(note, done=True)


@given(
    scenario=st.lists(steps, min_size=30, max_size=60),
    fair_sharing=st.sampled_from([FairSharing.OFF, FairSharing.BOTH]),
    can_shrink=st.booleans(),
)
@settings(max_examples=200, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_admitted_use_never_passes_the_quota_and_every_scenario_comes_to_rest(
    scenario: list[tuple[Any, ...]], fair_sharing: FairSharing, can_shrink: bool
) -> None:
    # A story is not made shorter when it fails: that takes minutes, and its last step is what matters.
    world = Scenario(fair_sharing, can_shrink=can_shrink)
    for step in scenario:
        world.play(step)
        world.use_never_passes_the_quota()
    world.rest()
