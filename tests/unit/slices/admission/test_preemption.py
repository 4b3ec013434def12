"""Who is preempted: the policies of a queue, the order of candidates, and no more victims than it takes."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from slicebus.slices.admission.cycle import Admit, Decision, Evict, Wait, cycle
from slicebus.slices.admission.preemption import preempted_for
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api.api_names import NO_PLACE
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED, EvictionReason, PreemptionReason
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.quota.quota import ClusterQueue, Cohort, FlavorQuota, Limits, LocalQueue, ResourceGroup
from slicebus.slices.workload.workload import Admission, FlavorName, Slice, SliceKey
from unit.slices.builders import (
    Quota,
    a_pod_set,
    a_queue,
    a_slice,
    admitted,
    replacement,
    snapshot,
    with_counts,
)

Manifest = dict[str, Any]
OWN = {"withinClusterQueue": "LowerPriority"}
RECLAIM = {"reclaimWithinCohort": "Any"}
RECLAIM_LOWER = {"reclaimWithinCohort": "LowerPriority"}
BORROW = RECLAIM_LOWER | {"borrowWithinCohort": {"policy": "LowerPriority"}}
IN_QUEUE = PreemptionReason.IN_CLUSTER_QUEUE
RECLAIMED = PreemptionReason.IN_COHORT_RECLAMATION
WHILE_BORROWING = PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING


def queue(name: str = "cq", quota: Quota = "10", *, cohort: str = "", **preemption: Any) -> ClusterQueue:
    return a_queue(name, {"default": {"cpu": quota}}, cohortName=cohort, preemption=preemption)


def cohort(name: str, parent: str = "", cores: int = 0) -> Cohort:
    limits = {"cpu": Limits(nominal=cores * 1000)}
    groups = (ResourceGroup(("cpu",), (FlavorQuota(FlavorName("default"), limits),)),)
    return Cohort(name=name, parent=parent, resource_groups=groups)


def holding(name: str, cores: int, priority: int = 0, *, queue: str = "cq", since: int = 0, **changes: Any) -> Slice:
    """A job with quota, one pod of so many cores, since that minute."""
    reserved = {"status": "True", "reason": "QuotaReserved", "lastTransitionTime": f"2026-01-01T00:{since:02}:00Z"}
    fields = {"job_uid": f"job-{name}", "priority": priority, "conditions": {"QuotaReserved": reserved}} | changes
    return admitted(a_slice(name, cores, **fields), queue=queue)


def waiting(name: str, cores: int, priority: int = 0, *, queue: str = "cq", **changes: Any) -> Slice:
    return a_slice(name, cores, **({"job_uid": f"job-{name}", "queue": f"to-{queue}", "priority": priority} | changes))


def world(*slices: Slice, queues: Iterable[ClusterQueue] = (), cohorts: Iterable[Cohort] = (), **more: Any) -> Snapshot:
    """LocalQueue `to-NAME` stands for ClusterQueue NAME."""
    found = [*queues] or [queue(**OWN)]
    locals = [LocalQueue(namespace="team", name=f"to-{q.name}", cluster_queue=q.name, held=False) for q in found]
    pending = [slice if slice.queue != "lq" else msgspec.structs.replace(slice, queue="to-cq") for slice in slices]
    return snapshot(*pending, queues=found, cohorts=cohorts, locals=locals, **more)


def name_of(key: SliceKey) -> str:
    return key.partition("/")[2]


def evicted(decisions: Iterable[Decision]) -> dict[str, str]:
    """Why, by name."""
    return {name_of(d.key): d.preemption for d in decisions if isinstance(d, Evict)}


def admitted_names(decisions: Iterable[Decision]) -> set[str]:
    return {name_of(d.key) for d in decisions if isinstance(d, Admit)}


def told(slice: Slice, decisions: Iterable[Decision]) -> Slice:
    """A slice after its decision was written."""
    found = [each for each in decisions if each.key == slice.key]
    for each in found:
        if isinstance(each, Evict):
            now = {"status": "True", "lastTransitionTime": "2026-01-01T01:00:00Z", "message": each.message}
            conditions = {"Evicted": now | {"reason": each.reason}, "Preempted": now | {"reason": each.preemption}}
            slice = msgspec.structs.replace(
                slice, evicted=True, admitted=False, conditions=slice.conditions | conditions
            )
        elif isinstance(each, Wait):
            reserved = {"status": "False", "reason": each.reason, "lastTransitionTime": "2026-01-01T01:00:00Z"}
            conditions = slice.conditions | {"QuotaReserved": reserved | {"message": each.message}}
            slice = msgspec.structs.replace(slice, conditions=conditions)
        else:
            slice = msgspec.structs.replace(slice, admission=each.admission, admitted=True, cluster=each.cluster)
    return slice


def gone(slice: Slice) -> Slice:
    """An evicted slice whose worker has no pod of it left. It waits in the queue that it had quota of."""
    assert slice.admission is not None
    return msgspec.structs.replace(slice, admission=None, queue=f"to-{slice.admission.cluster_queue}")


class TestWithinTheQueue:
    @pytest.mark.parametrize(
        ("policy", "priority", "created", "is_victim"),
        [
            ("Never", -1, "2026-01-02T00:00:00Z", False),
            ("LowerPriority", -1, "2025-01-01T00:00:00Z", True),
            ("LowerPriority", 0, "2026-01-02T00:00:00Z", False),
            ("LowerPriority", 1, "2026-01-02T00:00:00Z", False),
            ("LowerOrNewerEqualPriority", -1, "2025-01-01T00:00:00Z", True),
            ("LowerOrNewerEqualPriority", 0, "2026-01-02T00:00:00Z", True),
            ("LowerOrNewerEqualPriority", 0, "2025-01-01T00:00:00Z", False),
            ("LowerOrNewerEqualPriority", 1, "2026-01-02T00:00:00Z", False),
        ],
    )
    def test_the_policy_selects_candidates(self, policy: str, priority: int, created: str, is_victim: bool) -> None:
        decided = cycle(
            world(
                holding("other", 10, priority, created=created),
                waiting("w", 1),
                queues=[queue(withinClusterQueue=policy)],
            )
        )
        assert evicted(decided) == ({"other": IN_QUEUE} if is_victim else {})
        assert not admitted_names(decided)

    def test_nobody_where_there_is_room(self) -> None:
        decided = cycle(world(holding("other", 9, -1), waiting("w", 1)))
        assert (evicted(decided), admitted_names(decided)) == ({}, {"w"})

    def test_nobody_where_it_would_never_fit(self) -> None:
        assert not evicted(cycle(world(holding("other", 10, -1), waiting("w", 11))))

    def test_nobody_where_all_candidates_are_not_enough(self) -> None:
        assert not evicted(cycle(world(holding("low", 2, -1), holding("high", 8, 1), waiting("w", 3))))

    def test_lower_priority_first_then_the_newest(self) -> None:
        others = [holding("low", 2, -2, since=1), holding("old", 4, -1, since=1), holding("new", 4, -1, since=2)]
        assert set(evicted(cycle(world(*others, waiting("w", 2))))) == {"low"}
        assert set(evicted(cycle(world(*others, waiting("w", 4))))) == {"new"}
        assert set(evicted(cycle(world(*others, waiting("w", 6))))) == {"low", "new"}

    def test_no_victim_that_turns_out_not_to_be_needed(self) -> None:
        others = [holding("a", 1, -3), holding("b", 2, -2), holding("c", 7, -1)]
        assert set(evicted(cycle(world(*others, waiting("w", 7))))) == {"c"}

    def test_the_whole_chain_is_the_victim(self) -> None:
        # During a hand-over both slices hold quota; the newer one stands for the job, and one pod would be enough.
        old = holding("s1", 5, -1, job_uid="j")
        new = msgspec.structs.replace(holding("s2", 9, -1, job_uid="j"), replaces=old.key)
        assert evicted(cycle(world(old, new, waiting("w", 2)))) == {"s2": IN_QUEUE}

    def test_only_the_resource_that_is_short_makes_a_victim(self) -> None:
        both = a_queue("cq", {"default": {"cpu": "10", "memory": "10"}}, preemption=OWN)
        memory = holding("memory", 0, -2, pod_sets=(a_pod_set(requests={"memory": 5}),))
        decided = cycle(world(memory, holding("cpu", 10, -1), waiting("w", 1), queues=[both]))
        assert set(evicted(decided)) == {"cpu"}

    def test_the_messages_of_victim_and_preemptor(self) -> None:
        evict, wait = cycle(world(holding("other", 8, -1), waiting("w", 5)))
        assert isinstance(evict, Evict)
        assert evict.reason is EvictionReason.PREEMPTED
        assert evict.message == (
            "Preempted to accommodate a workload (UID: uid-w, JobUID: job-w) due to prioritization in the ClusterQueue"
            "; preemptor path: /cq; preemptee path: /cq"
        )
        assert isinstance(wait, Wait)
        assert wait.reason == WAITING_FOR_PREEMPTED
        assert wait.message == (
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, "
            "3 more needed. Pending the preemption of 1 workload(s)"
        )
        assert wait.would_admit == "the end of team/other"

    def test_a_job_that_could_run_nowhere_preempts_nobody(self) -> None:
        full = Cluster(name="worker", accepted=True, cordoned=True, connected=True)
        [wait] = cycle(world(holding("other", 10, -1), waiting("w", 1), clusters=[full]))
        assert isinstance(wait, Wait)
        assert wait.reason == NO_PLACE


class TestScaleUp:
    def test_preempts_for_the_difference_only(self) -> None:
        small = holding("small", 3, 5)
        others = [holding("a", 4, 0, since=1), holding("b", 3, 0, since=2)]
        bigger = replacement(small, "bigger", 6, priority=5, queue="to-cq")
        assert evicted(cycle(world(small, *others, bigger))) == {"b": IN_QUEUE}

    def test_its_old_slice_is_never_its_victim(self) -> None:
        old = holding("old", 6, -5)
        new = replacement(old, "new", 12, priority=5, queue="to-cq")
        assert not evicted(cycle(world(old, holding("other", 4, 9), new, queues=[queue(quota="12", **OWN)])))

    def test_it_keeps_its_flavor_while_it_waits(self) -> None:
        flavors = a_queue("cq", {"a": {"cpu": "10"}, "b": {"cpu": "10"}}, preemption=OWN)
        old = admitted(a_slice("old", 4, job_uid="j1", priority=5), flavor="b")
        full = admitted(a_slice("full", 6, job_uid="j2"), flavor="b")
        new = replacement(old, "new", 5, priority=5, queue="to-cq")
        assert set(evicted(cycle(world(old, full, new, queues=[flavors])))) == {"full"}

    def test_a_part_is_granted_only_where_nobody_can_be_preempted_for_all(self) -> None:
        old = holding("old", 2, 5)
        new = replacement(old, "new", 6, priority=5, queue="to-cq", partial=True)
        assert set(evicted(cycle(world(old, holding("low", 6, 0), new)))) == {"low"}
        [admit] = cycle(world(old, holding("high", 6, 9), new))
        assert isinstance(admit, Admit)
        assert admit.admission.counts == {"main": 4}


class TestWhileVictimsGo:
    def run(self, *slices: Slice, **more: Any) -> tuple[list[Decision], list[Slice]]:
        decided = cycle(world(*slices, **more))
        return decided, [told(slice, decided) for slice in slices]

    def test_no_second_victim_and_the_same_message(self) -> None:
        first, slices = self.run(holding("a", 5, -1, since=2), holding("b", 5, -1, since=1), waiting("w", 4))
        assert set(evicted(first)) == {"a"}
        second = cycle(world(*slices))
        assert [d for d in second if isinstance(d, Wait)] == [d for d in first if isinstance(d, Wait)]
        assert not evicted(second)
        assert preempted_for(slices[0]) == "uid-w"

    def test_nobody_else_gets_their_quota(self) -> None:
        _, (a, b, w) = self.run(holding("a", 5, -1, since=2), holding("b", 5, -1, since=1), waiting("w", 4))
        thief = waiting("thief", 1, 0, created="2027-01-01T00:00:00Z")
        small = waiting("small", 1, -9)
        assert not admitted_names(cycle(world(a, b, w, small)))
        # One core is left when the victim is gone and the preemptor is in.
        assert admitted_names(cycle(world(gone(a), b, w, thief, small))) == {"w", "thief"}

    def test_the_victim_comes_back_when_there_is_room(self) -> None:
        _, (a, w) = self.run(holding("a", 10, -1), waiting("w", 4))
        decided, (a, w) = self.run(gone(a), w)
        assert admitted_names(decided) == {"w"}
        assert not evicted(decided)
        assert admitted_names(cycle(world(a))) == {"a"}

    def test_two_preemptors_get_victims_of_their_own(self) -> None:
        others = [holding("a", 5, -1, since=2), holding("b", 5, -1, since=1)]
        decided = cycle(world(*others, waiting("v", 5), waiting("w", 5)))
        assert set(evicted(decided)) == {"a", "b"}
        assert all(d.reason == WAITING_FOR_PREEMPTED for d in decided if isinstance(d, Wait))

    def test_what_a_victim_has_left_is_for_its_preemptor_whoever_else_waits_for_victims(self) -> None:
        _, (a, b, w) = self.run(holding("a", 5, -1, since=2), holding("b", 5, -1, since=1), waiting("w", 5))
        decided, (a, b, w, high) = self.run(a, b, w, waiting("high", 5, 9))
        assert set(evicted(decided)) == {"b"}
        assert admitted_names(cycle(world(gone(a), b, w, high))) == {"w"}
        assert admitted_names(cycle(world(a, gone(b), w, high))) == {"high"}

    def test_what_one_victim_leaves_over_serves_another(self) -> None:
        decided = cycle(world(holding("a", 10, -1), waiting("v", 5), waiting("w", 5)))
        assert set(evicted(decided)) == {"a"}
        [later] = [d for d in decided if isinstance(d, Wait) and name_of(d.key) == "w"]
        assert later.message.endswith("Fits when those are gone who are evicted already")

    def test_deleted_and_stopped_holders_count_as_evicted(self) -> None:
        deleted, inactive = holding("a", 10, -1, deleting=True), holding("a", 10, -1, active=False)
        assert not evicted(cycle(world(deleted, waiting("w", 1))))
        decided = cycle(world(inactive, waiting("w", 1)))
        assert [d.reason for d in decided if isinstance(d, Evict)] == [EvictionReason.DEACTIVATED]

    def test_a_pending_scale_up_of_a_victim_waits(self) -> None:
        _, (a, b, w) = self.run(holding("a", 5, -1), holding("b", 5, 1), waiting("w", 4))
        grown = replacement(a, "grown", 5, priority=-1, queue="to-cq")
        assert not admitted_names(cycle(world(a, b, w, grown)))


class TestReclaim:
    """Queue `a` lends, queue `b` borrows; both have 5 cores."""

    def decide(self, *slices: Slice, a: Manifest = RECLAIM, b: Manifest | None = None) -> dict[str, str]:
        queues = [queue("a", "5", cohort="org", **a), queue("b", "5", cohort="org", **(b or {}))]
        return evicted(cycle(world(*slices, queues=queues)))

    def test_what_is_lent_comes_back_whatever_the_priority(self) -> None:
        lent = [holding("b1", 5, 9, queue="b", since=1), holding("b2", 5, 9, queue="b", since=2)]
        assert self.decide(*lent, waiting("w", 2, queue="a")) == {"b2": RECLAIMED}

    def test_only_from_lower_priority(self) -> None:
        lent = [holding("b1", 5, 0, queue="b", since=1), holding("b2", 5, 0, queue="b", since=2)]
        assert self.decide(*lent, waiting("w", 2, 0, queue="a"), a=RECLAIM_LOWER) == {}
        assert self.decide(*lent, waiting("w", 2, 1, queue="a"), a=RECLAIM_LOWER) == {"b2": RECLAIMED}

    def test_never(self) -> None:
        lent = [holding("b1", 10, 0, queue="b")]
        assert self.decide(*lent, waiting("w", 2, 9, queue="a"), a=OWN) == {}

    def test_a_queue_within_its_quota_loses_nothing(self) -> None:
        used = [holding("a1", 5, 0, queue="a"), holding("b1", 5, 0, queue="b")]
        assert self.decide(*used, waiting("w", 2, 9, queue="a")) == {}

    def test_a_queue_loses_nothing_more_when_it_is_back_within_its_quota(self) -> None:
        lent = [holding("b1", 2, 0, queue="b", since=2), holding("b2", 2, 0, queue="b", since=1)]
        lent += [holding("b3", 6, 5, queue="b", since=1)]
        # Without the youngest `b` uses 8, then 6: the last of its jobs brings it to 0, and it borrows until then.
        assert set(self.decide(*lent, waiting("w", 5, queue="a"))) == {"b3"}

    def test_other_queues_before_the_own(self) -> None:
        used = [
            holding("a1", 4, -9, queue="a"),
            holding("b1", 5, 0, queue="b"),
            holding("b2", 1, 0, queue="b", since=1),
        ]
        assert self.decide(*used, waiting("w", 1, 1, queue="a"), a=RECLAIM | OWN) == {"b2": RECLAIMED}

    def test_whoever_has_used_up_its_quota_reclaims_nothing_without_borrowing(self) -> None:
        used = [holding("a1", 5, 0, queue="a"), holding("b1", 4, 0, queue="b"), holding("c1", 6, 0, queue="c")]
        queues = [queue(name, "5", cohort="org", **(RECLAIM_LOWER if name == "a" else {})) for name in "abc"]
        decided = cycle(world(*used, waiting("w", 1, 9, queue="a"), queues=queues))
        assert evicted(decided) == {}
        assert not admitted_names(decided)


class TestBorrowWithinTheCohort:
    """All of 15 cores is used; `a`, with nothing left of its 5, wants more."""

    def decide(self, priority: int, *, threshold: int | None = None, policy: Manifest = BORROW) -> dict[str, str]:
        limit = {} if threshold is None else {"maxPriorityThreshold": threshold}
        a = policy | ({"borrowWithinCohort": policy["borrowWithinCohort"] | limit} if threshold is not None else {})
        used = [holding("a1", 5, 9, queue="a"), holding("b1", 4, 9, queue="b"), holding("c1", 6, 0, queue="c")]
        queues = [queue("a", "5", cohort="org", **a), queue("b", "5", cohort="org"), queue("c", "5", cohort="org")]
        return evicted(cycle(world(*used, waiting("w", 1, priority, queue="a"), queues=queues)))

    def test_lower_priority_gives_way(self) -> None:
        assert self.decide(1) == {"c1": WHILE_BORROWING}

    def test_equal_priority_does_not(self) -> None:
        assert self.decide(0) == {}

    def test_up_to_the_threshold_only(self) -> None:
        assert self.decide(1, threshold=0) == {"c1": WHILE_BORROWING}
        assert self.decide(1, threshold=-1) == {}

    def test_not_without_the_policy(self) -> None:
        assert self.decide(1, policy=RECLAIM_LOWER) == {}


class TestHierarchy:
    """Team `t` with queues `a` and `b`, and queue `c` beside it, in the organisation."""

    def decide(self, *slices: Slice, quotas: tuple[str, str, str] = ("0", "0", "5"), team: int = 5, **a: Any) -> Any:
        queues = [queue("a", quotas[0], cohort="t", **a), queue("b", quotas[1], cohort="t")]
        queues.append(queue("c", quotas[2], cohort="org"))
        return evicted(cycle(world(*slices, queues=queues, cohorts=[cohort("t", "org", team), cohort("org")])))

    def test_a_queue_reclaims_what_its_team_has_lent(self) -> None:
        lent = [holding("c1", 5, 9, queue="c", since=1), holding("c2", 5, 9, queue="c", since=2)]
        assert self.decide(*lent, waiting("w", 3, queue="a"), **RECLAIM) == {"c2": RECLAIMED}

    def test_within_the_team_it_is_by_priority(self) -> None:
        mates = [holding("b1", 5, 0, queue="b")]
        spare = holding("c1", 5, 0, queue="c")
        assert self.decide(*mates, spare, waiting("w", 3, 1, queue="a"), **RECLAIM_LOWER) == {}
        assert self.decide(*mates, spare, waiting("w", 3, 1, queue="a"), **BORROW) == {"b1": WHILE_BORROWING}

    def test_a_team_within_its_quota_is_left_alone(self) -> None:
        # `b` borrows, but only from its own team: the team as a whole owes nothing to `c`.
        used = [holding("b1", 5, 0, queue="b"), holding("c1", 5, 0, queue="c")]
        queues = [queue("a", "0", cohort="t"), queue("b", "0", cohort="t"), queue("c", "5", cohort="org", **RECLAIM)]
        decided = cycle(
            world(*used, waiting("w", 1, 9, queue="c"), queues=queues, cohorts=[cohort("t", "org", 5), cohort("org")])
        )
        assert evicted(decided) == {}

    def test_the_message_names_both_paths(self) -> None:
        lent = [holding("c1", 10, 9, queue="c")]
        queues = [queue("a", "0", cohort="t", **RECLAIM), queue("c", "5", cohort="org")]
        decided = cycle(
            world(*lent, waiting("w", 1, queue="a"), queues=queues, cohorts=[cohort("t", "org", 5), cohort("org")])
        )
        [evict] = [d for d in decided if isinstance(d, Evict)]
        assert evict.message.endswith("preemptor path: /org/t/a; preemptee path: /org/c")


class TestTurns:
    def test_own_quota_before_borrowed(self) -> None:
        queues = [queue("a", "5", cohort="org"), queue("b", "5", cohort="org")]
        borrower, owner = waiting("borrower", 6, 9, queue="b"), waiting("owner", 5, 0, queue="a")
        assert admitted_names(cycle(world(borrower, owner, queues=queues))) == {"owner"}

    def test_priority_among_those_who_borrow(self) -> None:
        queues = [queue("a", "5", cohort="org"), queue("b", "5", cohort="org")]
        low, high = waiting("low", 6, 0, queue="a"), waiting("high", 6, 9, queue="b")
        assert admitted_names(cycle(world(low, high, queues=queues))) == {"high"}

    def test_a_preemptor_comes_before_whoever_could_take_its_room(self) -> None:
        queues = [queue("a", "5", cohort="org", **RECLAIM), queue("b", "5", cohort="org")]
        slices = [holding("b1", 10, 0, queue="b"), waiting("w", 5, 0, queue="a")]
        decided = cycle(world(*slices, queues=queues))
        assert evicted(decided) == {"b1": RECLAIMED}
        b1, w = (told(slice, decided) for slice in slices)
        other = waiting("other", 6, 9, queue="b")
        assert admitted_names(cycle(world(gone(b1), w, other, queues=queues))) == {"w"}

    @pytest.mark.parametrize("strict", [False, True], ids=["BestEffortFIFO", "StrictFIFO"])
    def test_who_is_before_a_preemptor_in_its_queue_takes_its_room_only_in_strict_order(self, strict: bool) -> None:
        own = msgspec.structs.replace(queue("a", "5", cohort="org", **RECLAIM), strict_fifo=strict)
        queues = [own, queue("b", "5", cohort="org")]
        slices = [holding("b1", 10, 0, queue="b"), waiting("w", 5, 0, queue="a")]
        decided = cycle(world(*slices, queues=queues))
        rival = waiting("rival", 7, 9, queue="a", created="2027-01-01T00:00:00Z")
        b1, w = (told(slice, decided) for slice in slices)
        for _ in range(3):
            # What one cycle says is no reason for the next one to say something else.
            again = cycle(world(b1, w, rival, queues=queues))
            reasons = {name_of(each.key): each.reason for each in again if isinstance(each, Wait)}
            assert (reasons["w"] == WAITING_FOR_PREEMPTED) is not strict
            assert not evicted(again)
            w, rival = told(w, again), told(rival, again)
        assert admitted_names(cycle(world(gone(b1), w, rival, queues=queues))) == {"rival" if strict else "w"}


class TestFlavors:
    """Flavor `x` before `y`, four cores each."""

    def decide(self, *slices: Slice, cohort: str = "", other: str = "4", **spec: Any) -> list[Decision]:
        quotas: dict[str, dict[str, Quota]] = {"x": {"cpu": "4"}, "y": {"cpu": "4"}}
        queues = [a_queue("cq", quotas, preemption=OWN, cohortName=cohort, **spec)]
        if cohort:
            queues.append(a_queue("lender", {"x": {"cpu": other}, "y": {"cpu": "0"}}, cohortName=cohort))
        return cycle(world(*slices, queues=queues))

    def flavor(self, decided: list[Decision]) -> str | None:
        return next((d.admission.pod_sets[0].flavors["cpu"] for d in decided if isinstance(d, Admit)), None)

    def on(self, flavor: str, name: str, cores: int, priority: int = -1, **changes: Any) -> Slice:
        return admitted(a_slice(name, cores, job_uid=f"job-{name}", priority=priority, **changes), flavor=flavor)

    def test_the_next_flavor_rather_than_a_victim(self) -> None:
        assert self.flavor(self.decide(self.on("x", "low", 4), waiting("w", 2))) == "y"

    def test_a_victim_in_the_first_where_the_queue_says_so(self) -> None:
        decided = self.decide(
            self.on("x", "low", 4), waiting("w", 2), flavorFungibility={"whenCanPreempt": "MayStopSearch"}
        )
        assert evicted(decided) == {"low": IN_QUEUE}

    def test_a_victim_in_the_first_while_others_leave_another_tree(self) -> None:
        """Nobody would decide it again when they have left: that changes nothing for its queue."""
        leaving = holding("leaving", 1, queue="far", evicted=True)
        queues = [
            a_queue(
                "cq",
                {"x": {"cpu": "4"}, "y": {"cpu": "4"}},
                preemption=OWN,
                flavorFungibility={"whenCanPreempt": "MayStopSearch"},
            ),
            queue("far"),
        ]
        decided = cycle(world(self.on("x", "low", 4), waiting("w", 2), leaving, queues=queues))
        assert evicted(decided) == {"low": IN_QUEUE}

    def test_a_flavor_with_victims_before_one_without(self) -> None:
        decided = self.decide(self.on("x", "high", 4, 9), self.on("y", "low", 4), waiting("w", 2))
        assert evicted(decided) == {"low": IN_QUEUE}

    def test_borrowing_in_the_first_flavor(self) -> None:
        assert self.flavor(self.decide(self.on("x", "low", 4), waiting("w", 2), cohort="org")) == "x"

    def test_the_next_flavor_rather_than_borrowing_where_the_queue_says_so(self) -> None:
        rules = {"whenCanBorrow": "TryNextFlavor"}
        decided = self.decide(self.on("x", "low", 4), waiting("w", 2), cohort="org", flavorFungibility=rules)
        assert self.flavor(decided) == "y"

    @pytest.mark.parametrize(
        ("preference", "flavor", "victims"),
        [(None, "x", set()), ("BorrowingOverPreemption", "x", set()), ("PreemptionOverBorrowing", None, {"on-y"})],
        ids=["default", "borrow", "preempt"],
    )
    def test_borrowing_or_preempting(self, preference: str | None, flavor: str | None, victims: set[str]) -> None:
        rules = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
        rules |= {"preference": preference} if preference else {}
        full = [self.on("x", "on-x", 4, 9), self.on("y", "on-y", 4)]
        decided = self.decide(*full, waiting("w", 2), cohort="org", flavorFungibility=rules)
        assert (self.flavor(decided), set(evicted(decided))) == (flavor, victims)

    def test_a_preemptor_does_not_turn_to_another_flavor(self) -> None:
        full = [self.on("x", "high", 4, 9), self.on("y", "low", 4)]
        w = waiting("w", 2)
        decided = self.decide(*full, w)
        full = [told(slice, decided) for slice in full]
        # Meanwhile there is a victim in the first flavor too, and this queue would stop there.
        full[0] = self.on("x", "now-low", 4, -5)
        decided = self.decide(*full, told(w, decided), flavorFungibility={"whenCanPreempt": "MayStopSearch"})
        assert not evicted(decided)

    def test_the_next_flavor_where_a_pod_set_alone_could_reclaim_and_the_whole_job_may_not(self) -> None:
        # In `x` its head would be within the quota, but the job borrows `y` for its worker, and may not reclaim then.
        rules = {"whenCanPreempt": "MayStopSearch"}
        quotas: dict[str, dict[str, Quota]] = {"x": {"cpu": "3"}, "y": {"cpu": "0"}}
        queues = [
            a_queue("cq", quotas, cohortName="org", preemption=RECLAIM, flavorFungibility=rules),
            a_queue("lender", {"x": {"cpu": "0"}, "y": {"cpu": "5"}}, cohortName="org"),
        ]
        borrower = admitted(a_slice("borrower", 3, job_uid="job-b"), flavor="x", queue="lender")
        job = waiting("w", 1, pod_sets=(a_pod_set("head", 3), a_pod_set("worker")))
        decided = cycle(world(borrower, job, queues=queues))
        assert (self.flavor(decided), admitted_names(decided), evicted(decided)) == ("y", {"w"}, {})

    def with_head(self) -> Slice:
        """A job of a pod with one core and one with four, which has room in both flavors together only."""
        pod_sets = (a_pod_set("head"), a_pod_set("workers", 4))
        return waiting("w", 1, pod_sets=pod_sets)

    def test_nobody_is_preempted_for_flavors_that_a_job_would_not_have_then(self) -> None:
        # With `low` gone its head would have room in `x`, and its workers nowhere.
        full = [self.on("x", "low", 4), self.on("y", "high", 3, 9)]
        decided = self.decide(*full, self.with_head())
        assert (evicted(decided), [type(each) for each in decided]) == ({}, [Wait])

    @pytest.mark.parametrize(("cores_of_y", "victims"), [(4, {"low"}), (1, set[str]())], ids=["room", "no room"])
    def test_nobody_is_preempted_for_flavors_that_no_cluster_has_room_for_then(
        self, cores_of_y: int, victims: set[str]
    ) -> None:
        # Beside `low` the head would take `y` and the workers `x`; with `low` gone they take each the other.
        capacity = {FlavorName(name): {"cpu": 1000 * cores} for name, cores in (("x", 2), ("y", cores_of_y))}
        worker = Cluster(name="worker", accepted=True, cordoned=False, connected=True, capacity=capacity)
        job = waiting("w", 1, pod_sets=(a_pod_set("head"), a_pod_set("workers", 2)))
        flavors = a_queue("cq", {"x": {"cpu": "2"}, "y": {"cpu": "2"}}, preemption=OWN)
        decided = cycle(world(self.on("x", "low", 2), job, queues=[flavors], clusters=[worker]))
        assert set(evicted(decided)) == victims

    def test_nobody_is_preempted_for_what_fits_in_other_flavors_when_the_evicted_are_gone(self) -> None:
        going = [
            msgspec.structs.replace(slice, evicted=True, admitted=False)
            for slice in (self.on("x", "a", 1), self.on("y", "b", 3))
        ]
        [wait] = self.decide(self.on("x", "low", 3), *going, self.with_head())
        assert isinstance(wait, Wait)
        assert wait.message.endswith("Fits when those are gone who are evicted already")

    def test_nobody_is_preempted_for_room_that_a_waiting_job_would_choose_then(self) -> None:
        # The head of `old` would borrow in `x` now and has its own quota there when `new` is gone, before `mid`.
        quotas: dict[str, dict[str, Quota]] = {"x": {"cpu": "1"}, "y": {"cpu": "5"}}
        policy = {"withinClusterQueue": "LowerOrNewerEqualPriority"} | BORROW
        a = a_queue("cq", quotas, cohortName="all", preemption=policy)
        evicted_pod_sets = (a_pod_set("head"), a_pod_set("workers", 5))
        going = self.on("y", "going", 1, pod_sets=evicted_pod_sets, evicted=True, admitted=False)
        assert going.admission is not None
        head, workers = going.admission.pod_sets
        head = msgspec.structs.replace(head, flavors={"cpu": FlavorName("x")})
        going = msgspec.structs.replace(going, admission=Admission(cluster_queue="cq", pod_sets=(head, workers)))
        slices = [
            going,
            self.on("x", "new", 1, 0, created="2026-01-04T00:00:00Z"),
            waiting("old", 1, pod_sets=(a_pod_set("head"), a_pod_set("workers", 4)), created="2026-01-02T00:00:00Z"),
            waiting("mid", 2, created="2026-01-03T00:00:00Z"),
        ]
        lent = ResourceGroup(("cpu",), (FlavorQuota(FlavorName("x"), {"cpu": Limits(nominal=1000)}),))
        shared = Cohort(name="all", parent="", resource_groups=(lent,))
        assert evicted(cycle(world(*slices, queues=[a], cohorts=[shared]))) == {}


def test_a_shrunk_job_frees_only_what_it_still_has() -> None:
    shrunk = with_counts(holding("shrunk", 6, -1), main=1)
    decided = cycle(world(shrunk, holding("other", 9, -1, since=1), waiting("w", 2)))
    assert set(evicted(decided)) == {"other"}


class TestAWaitingSliceWithRoomForAPart:
    """Flavor `x` before `y`, 4 and 5 cores, of which workloads that leave have 4 and 3, and `low` has 1 of `y`.

    One pod of `first` would fit in `y` now. Without `low` its two other pods would.
    """

    QUEUE = a_queue("cq", {"x": {"cpu": "4"}, "y": {"cpu": "5"}}, preemption=OWN)
    LEAVING = (
        admitted(a_slice("in-x", 4, job_uid="in-x", evicted=True), flavor="x"),
        admitted(a_slice("in-y", 3, job_uid="in-y", evicted=True), flavor="y"),
    )
    LOW = a_slice("low", 1, job_uid="low", priority=-10)
    FIRST = a_slice("first", job_uid="first", priority=10, pod_sets=(a_pod_set("two", 2), a_pod_set("one")))

    def decide(self, *slices: Slice) -> list[Decision]:
        return cycle(world(*self.LEAVING, self.FIRST, *slices, queues=[self.QUEUE]))

    def test_reserves_what_it_takes_when_the_others_are_gone(self) -> None:
        """Otherwise `next` preempts `low`, does not fit without it, and lets it have its quota again, for ever."""
        decided = self.decide(admitted(self.LOW, flavor="y"), waiting("next", 4))
        assert evicted(decided) == {}
        assert all("Fits when those are gone" in each.message for each in decided if isinstance(each, Wait))

    def test_whoever_is_preempted_for_the_next_one_waits_for_it(self) -> None:
        low, after = admitted(self.LOW, flavor="y"), waiting("next", 5)
        decided = self.decide(low, after)
        assert set(evicted(decided)) == {"low"}
        again = self.decide(gone(told(low, decided)), told(after, decided))
        assert admitted_names(again) == set()
