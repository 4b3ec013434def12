"""The admission cycle: the delta of a chain, sticky flavors, order, and why a slice waits."""

from typing import Any

import msgspec
import pytest

from slicebus.slices.admission.cycle import Admit, Decision, Wait, cycle
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api.api_names import NO_PLACE
from slicebus.slices.placement.fleet import Cluster, Strategy
from slicebus.slices.quota.cohorts import MOST_LEVELS
from slicebus.slices.quota.quota import Cohort, LocalQueue
from slicebus.slices.workload.workload import Admission, FlavorName, Slice
from unit.slices.builders import (
    a_flavor,
    a_pod_set,
    a_queue,
    a_slice,
    admits,
    admitted,
    apply,
    replacement,
    snapshot,
    with_counts,
)


def a_local_queue(cluster_queue: str = "cq", *, name: str = "lq", held: bool = False) -> LocalQueue:
    return LocalQueue(namespace="team", name=name, cluster_queue=cluster_queue, held=held)


def decision(world: Snapshot) -> Decision:
    [only] = cycle(world)
    return only


def admission_of(world: Snapshot) -> Admit:
    found = decision(world)
    assert isinstance(found, Admit), found
    return found


def wait_of(world: Snapshot) -> Wait:
    found = decision(world)
    assert isinstance(found, Wait), found
    return found


def names(world: Snapshot) -> list[str]:
    return [admit.key.partition("/")[2] for admit in admits(world)]


class TestDelta:
    """A replacement is charged the difference; the chain counts once."""

    three = admitted(a_slice("s1", 3))

    @pytest.mark.parametrize(("others", "fits"), [(0, True), (0.5, False), (1, False)], ids=["7 free", "6.5", "6"])
    def test_from_3_to_10_of_10_needs_quota_for_7(self, others: float, fits: bool) -> None:
        other = admitted(a_slice("o1", job_uid="other", pod_sets=(a_pod_set(requests={"cpu": int(others * 1000)}),)))
        world = snapshot(self.three, other, replacement(self.three, "s2", 10))
        assert (names(world) == ["s2"]) is fits

    def test_without_a_chain_10_more_would_not_fit_beside_3(self) -> None:
        assert names(snapshot(self.three, a_slice("x", 10, job_uid="other"))) == []

    def test_exactly_7_are_charged_before_the_next_slice_is_assessed(self) -> None:
        queue, seven = a_queue(quotas={"default": {"cpu": "12"}}), a_slice("x", 2, job_uid="x")
        eight = a_slice("y", 3, job_uid="y")
        assert names(snapshot(self.three, replacement(self.three, "s2", 10), seven, queues=[queue])) == ["s2", "x"]
        assert names(snapshot(self.three, replacement(self.three, "s2", 10), eight, queues=[queue])) == ["s2"]

    def test_the_admission_of_the_replacement_is_of_all_its_pods(self) -> None:
        admit = admission_of(snapshot(self.three, replacement(self.three, "s2", 10)))
        assert admit.admission.counts == {"main": 10}
        assert admit.admission.pod_sets[0].usage == {"cpu": 10_000}

    def test_the_chain_counts_once_while_both_slices_are_there(self) -> None:
        both = [self.three, admitted(replacement(self.three, "s2", 9))]
        assert names(snapshot(*both, a_slice("x", 1, job_uid="x"))) == ["x"]
        assert names(snapshot(*both, a_slice("x", 2, job_uid="x"))) == []

    def test_the_difference_is_per_flavor_over_all_pod_sets(self) -> None:
        old = admitted(a_slice("s1", pod_sets=(a_pod_set("a", 3), a_pod_set("b", 7))))
        turned = replacement(old, "s2", 0, pod_sets=(a_pod_set("a", 7), a_pod_set("b", 3)))
        assert names(snapshot(old, turned)) == ["s2"]

    def test_what_a_replacement_gives_back_is_free_once_the_old_slice_has_ended(self) -> None:
        # The write of the replacement's admission may fail while that of the next slice succeeds.
        old = admitted(a_slice("s1", pod_sets=(a_pod_set("a", 9), a_pod_set("b", 1))))
        smaller = replacement(old, "s2", 0, pod_sets=(a_pod_set("a", 1), a_pod_set("b", 2)))
        next_one = a_slice("x", 7, job_uid="x")
        assert names(snapshot(old, smaller, next_one)) == ["s2"]
        both = apply([old, smaller, next_one], *admits(snapshot(old, smaller, next_one)))
        assert names(snapshot(*both)) == []
        assert names(snapshot(msgspec.structs.replace(old, finished=True), *both[1:])) == ["x"]

    def test_quota_in_another_queue_is_not_given_back_to_this_one(self) -> None:
        queues = [a_queue("now"), a_queue("before")]
        old = admitted(a_slice("s1", 6), queue="before")
        other = admitted(a_slice("o1", 5, job_uid="other"), queue="now")
        new = replacement(old, "s2", 7)
        assert wait_of(snapshot(old, other, new, queues=queues)).message.endswith(
            "insufficient unused quota for cpu in flavor default, 2 more needed"
        )
        assert names(snapshot(old, new, queues=queues)) == ["s2"]


class TestScaleDown:
    five = admitted(a_slice("s1", 5))

    def test_it_frees_what_is_no_longer_asked(self) -> None:
        waiting = a_slice("x", 7, job_uid="x")
        assert names(snapshot(self.five, waiting)) == []
        assert names(snapshot(with_counts(self.five, main=3), waiting)) == ["x"]

    def test_growing_again_needs_quota_again(self) -> None:
        three = with_counts(self.five, main=3)
        taken = admitted(a_slice("x", 7, job_uid="x"))
        assert names(snapshot(three, taken, replacement(three, "s2", 5))) == []


class TestSticky:
    queue = a_queue(quotas={"spot": {"cpu": "4"}, "on-demand": {"cpu": "10"}})

    def test_a_chain_stays_in_its_flavor(self) -> None:
        old = admitted(a_slice("s1", 2), flavor="on-demand")
        admit = admission_of(snapshot(old, replacement(old, "s2", 3), queues=[self.queue]))
        assert admit.admission.flavors_of("main") == {"cpu": "on-demand"}

    def test_a_chain_that_outgrows_its_flavor_waits_for_it(self) -> None:
        old = admitted(a_slice("s1", 2), flavor="spot")
        wait = wait_of(snapshot(old, replacement(old, "s2", 5), queues=[self.queue]))
        assert wait.message == (
            "couldn't assign flavors to pod set main: couldn't change flavor from: spot to: on-demand, "
            "insufficient quota for cpu in flavor spot, request > maximum capacity (5 > 4)"
        )
        assert wait.would_admit == "1 more cpu in flavor spot of ClusterQueue cq"

    def test_a_chain_stays_on_its_cluster_even_a_cordoned_or_lost_one(self) -> None:
        clusters = [
            Cluster(name="free", accepted=True, cordoned=False, connected=True),
            Cluster(name="worker", accepted=True, cordoned=True, connected=False),
        ]
        old = admitted(a_slice("s1", 2))
        assert admission_of(snapshot(old, replacement(old, "s2", 3), clusters=clusters)).cluster == "worker"

    def test_a_chain_that_has_no_cluster_yet_gets_one(self) -> None:
        old = admitted(a_slice("s1", 2), cluster=None)
        assert admission_of(snapshot(old, replacement(old, "s2", 3))).cluster == "worker"

    def test_several_flavors_are_tried_in_order(self) -> None:
        slices = [a_slice(f"s{index}", 3, job_uid=f"j{index}") for index in range(5)]
        found = admits(snapshot(*slices, queues=[self.queue]))
        assert [admit.admission.flavors_of("main")["cpu"] for admit in found] == ["spot", *["on-demand"] * 3]


NOWHERE = Cluster(name="worker", accepted=True, cordoned=False, connected=False)
NEW = a_slice("s1", 11)

FINDINGS: dict[str, tuple[Snapshot, Wait]] = {
    "an unknown LocalQueue": (
        snapshot(NEW, locals=[]),
        Wait(key=NEW.key, reason="Inadmissible", message="LocalQueue lq doesn't exist"),
    ),
    "a LocalQueue of another namespace": (
        snapshot(NEW, locals=[msgspec.structs.replace(a_local_queue(), namespace="others")]),
        Wait(key=NEW.key, reason="Inadmissible", message="LocalQueue lq doesn't exist"),
    ),
    "an unknown ClusterQueue": (
        snapshot(NEW, locals=[a_local_queue("gone")]),
        Wait(key=NEW.key, reason="Inadmissible", message="ClusterQueue gone doesn't exist"),
    ),
    "a stopped LocalQueue": (
        snapshot(NEW, locals=[a_local_queue(held=True)]),
        Wait(key=NEW.key, reason="Inadmissible", message="LocalQueue lq is stopped"),
    ),
    "a stopped ClusterQueue": (
        snapshot(NEW, queues=[a_queue(stopPolicy="Hold")]),
        Wait(key=NEW.key, reason="Inadmissible", message="ClusterQueue cq is stopped"),
    ),
    "an unknown flavor": (
        snapshot(NEW, flavors=[a_flavor("other")]),
        Wait(
            key=NEW.key,
            reason="Pending",
            message="couldn't assign flavors to pod set main: flavor default not found",
        ),
    ),
    "too large": (
        snapshot(NEW),
        Wait(
            key=NEW.key,
            reason="Pending",
            message="couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, "
            "request > maximum capacity (11 > 10)",
            would_admit="1 more cpu in flavor default of ClusterQueue cq",
        ),
    ),
    "not now": (
        snapshot(admitted(a_slice("o1", 4, job_uid="other")), with_counts(NEW, main=8)),
        Wait(
            key=NEW.key,
            reason="Pending",
            message="couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, "
            "2 more needed",
            would_admit="2 more cpu in flavor default of ClusterQueue cq",
        ),
    ),
    "no cluster": (
        snapshot(with_counts(NEW, main=1), clusters=[]),
        Wait(
            key=NEW.key,
            reason="NoPlace",
            message="no worker cluster can take it: there is no WorkerCluster",
            would_admit="a worker cluster with room for it",
        ),
    ),
    "no connected cluster": (
        snapshot(with_counts(NEW, main=1), clusters=[NOWHERE]),
        Wait(
            key=NEW.key,
            reason="NoPlace",
            message="no worker cluster can take it: worker is not connected",
            would_admit="a worker cluster with room for it",
        ),
    ),
    "the replaced slice is not the holder": (
        snapshot(admitted(a_slice("s0", 1)), msgspec.structs.replace(NEW, replaces=a_slice("s9").key)),
        Wait(
            key=NEW.key,
            reason="Pending",
            message="the slice that it replaces is not the one that holds the job's quota",
        ),
    ),
    "a second first slice of the job": (
        snapshot(admitted(a_slice("s0", 1)), with_counts(NEW, main=2)),
        Wait(
            key=NEW.key,
            reason="Pending",
            message="the slice that it replaces is not the one that holds the job's quota",
        ),
    ),
}


def test_of_two_replacements_of_one_slice_only_one_is_admitted() -> None:
    """A manager that was stopped may have made the second. Both would fit."""
    old = admitted(a_slice("s0", 1))
    both = [replacement(old, "s1", 2), replacement(old, "s2", 3)]
    assert [admit.key for admit in admits(snapshot(old, *both))] == [both[0].key]


@pytest.mark.parametrize(("world", "expected"), FINDINGS.values(), ids=FINDINGS.keys())
def test_a_waiting_slice_names_the_reason_and_what_would_admit_it(world: Snapshot, expected: Wait) -> None:
    assert decision(world) == expected


def test_only_one_of_two_replacements_takes_over() -> None:
    old = admitted(a_slice("s1", 1))
    world = snapshot(old, replacement(old, "s2", 2), replacement(old, "s3", 2))
    assert names(world) == ["s2"]


def test_a_replacement_of_a_slice_that_is_gone_is_charged_in_full_and_placed_anew() -> None:
    orphan = msgspec.structs.replace(a_slice("s2", 10), replaces=a_slice("s1").key)
    assert admission_of(snapshot(orphan)).cluster == "worker"
    assert names(snapshot(orphan, admitted(a_slice("o1", 1, job_uid="other")))) == []


PENDING = a_slice("s1")


@pytest.mark.parametrize(
    ("slice", "expected"),
    [
        (PENDING, True),
        (admitted(PENDING), False),
        (msgspec.structs.replace(PENDING, finished=True), False),
        (msgspec.structs.replace(PENDING, evicted=True), True),
        (msgspec.structs.replace(admitted(PENDING), evicted=True), False),
        (msgspec.structs.replace(PENDING, deleting=True), False),
    ],
    ids=["pending", "has quota", "finished", "evicted", "evicted, with quota", "deleting"],
)
def test_only_an_active_slice_without_quota_is_pending(slice: Slice, expected: bool) -> None:
    assert slice.pending is expected
    assert [type(found) for found in cycle(snapshot(slice))] == [Admit] * expected


def test_a_deactivated_slice_waits_with_that_reason() -> None:
    waits = wait_of(snapshot(msgspec.structs.replace(PENDING, active=False)))
    assert (waits.reason, waits.message) == ("Inadmissible", "The workload is deactivated")


class TestOrder:
    def test_by_priority_then_age_then_uid(self) -> None:
        slices = [
            a_slice("young", created="2026-01-01T00:00:02Z", job_uid="1"),
            a_slice("old", created="2026-01-01T00:00:01Z", job_uid="2"),
            a_slice("urgent", priority=5, created="2026-01-01T00:00:03Z", job_uid="3"),
            a_slice("twin", uid="zz", created="2026-01-01T00:00:01Z", job_uid="4"),
        ]
        assert names(snapshot(*slices)) == ["urgent", "old", "twin", "young"]
        assert names(snapshot(*reversed(slices))) == ["urgent", "old", "twin", "young"]

    @pytest.mark.parametrize(
        ("strategy", "expected"), [("BestEffortFIFO", ["small"]), ("StrictFIFO", [])], ids=["best effort", "strict"]
    )
    def test_a_later_slice_passes_one_that_waits_unless_the_queue_is_strict(
        self, strategy: str, expected: list[str]
    ) -> None:
        world = snapshot(
            a_slice("large", 11, priority=1, job_uid="1"),
            a_slice("small", 1, job_uid="2"),
            queues=[a_queue(queueingStrategy=strategy)],
        )
        assert names(world) == expected

    def test_a_slice_behind_the_head_of_a_strict_queue_names_it(self) -> None:
        world = snapshot(
            a_slice("large", 11, priority=1, job_uid="1"),
            a_slice("small", 1, job_uid="2"),
            queues=[a_queue(queueingStrategy="StrictFIFO")],
        )
        assert cycle(world)[1] == Wait(
            key=a_slice("small").key,
            reason="Pending",
            message="waits behind the head of the StrictFIFO ClusterQueue cq",
            would_admit="the workloads before it",
        )

    def test_a_strict_queue_holds_up_no_other(self) -> None:
        world = snapshot(
            a_slice("large", 11, priority=1, job_uid="1"),
            a_slice("elsewhere", 1, job_uid="2", queue="lq2"),
            queues=[a_queue(queueingStrategy="StrictFIFO"), a_queue("cq2")],
            locals=[a_local_queue(), a_local_queue("cq2", name="lq2")],
        )
        assert names(world) == ["elsewhere"]

    def test_a_slice_without_a_queue_is_no_head_of_any(self) -> None:
        world = snapshot(
            a_slice("lost", priority=1, job_uid="1", queue="gone"),
            a_slice("small", 1, job_uid="2"),
            queues=[a_queue(queueingStrategy="StrictFIFO")],
        )
        assert names(world) == ["small"]


def test_jobs_spread_over_clusters_within_one_cycle() -> None:
    clusters = [Cluster(name=name, accepted=True, cordoned=False, connected=True) for name in ("a", "b")]
    old = admitted(a_slice("s1", 1), cluster="a")
    new = [a_slice(f"n{index}", job_uid=f"j{index}") for index in range(3)]
    found = admits(snapshot(old, replacement(old, "s2", 2), *new, clusters=clusters))
    assert {admit.key.partition("/")[2]: admit.cluster for admit in found} == {
        "n0": "b",
        "n1": "a",
        "n2": "b",
        "s2": "a",
    }


def test_an_admission_is_read_as_it_was_written() -> None:
    pod_sets = (a_pod_set("head", 1, {"cpu": 1500, "memory": 2**30}), a_pod_set("small", 4, {"cpu": 100}))
    queue = a_queue(quotas={"default": {"cpu": "10", "memory": "8Gi"}})
    admission = admission_of(snapshot(a_slice("s1", pod_sets=pod_sets), queues=[queue])).admission
    written: dict[str, Any] = admission.to_manifest()
    assert written == {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {
                "name": "head",
                "flavors": {"cpu": "default", "memory": "default"},
                "resourceUsage": {"cpu": "1500m", "memory": "1Gi"},
                "count": 1,
            },
            {"name": "small", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "400m"}, "count": 4},
        ],
    }
    assert Admission.from_manifest(written) == admission


class TestCohort:
    """Two queues of one cohort: `cq` with the slice, and `other` whose quota it may borrow."""

    OTHER = a_queue("other", quotas={"default": {"cpu": ("10", None, 4)}}, cohortName="org")

    def admitted_with(self, count: int, *others: Slice, **queue: Any) -> bool:
        world = snapshot(a_slice("a", count), *others, queues=[a_queue(cohortName="org", **queue), self.OTHER])
        return bool(admits(world))

    def test_a_queue_borrows_what_another_lends(self) -> None:
        assert self.admitted_with(14)
        assert not self.admitted_with(15)

    def test_no_more_than_the_queue_may_borrow(self) -> None:
        limited = {"default": {"cpu": ("10", 1, None)}}
        assert self.admitted_with(11, quotas=limited)
        assert not self.admitted_with(12, quotas=limited)

    def test_quota_in_use_is_not_lent(self) -> None:
        assert self.admitted_with(12, admitted(a_slice("b", 8, job_uid="k"), queue="other"))
        assert not self.admitted_with(13, admitted(a_slice("b", 8, job_uid="k"), queue="other"))

    def test_a_resize_borrows_the_difference_only(self) -> None:
        old = admitted(a_slice("a", 9))
        queues = [a_queue(cohortName="org"), self.OTHER]
        assert admits(snapshot(old, replacement(old, "b", 14), queues=queues))
        assert not admits(snapshot(old, replacement(old, "b", 15), queues=queues))

    def test_a_waiting_slice_names_the_maximum_capacity(self) -> None:
        [decision] = cycle(snapshot(a_slice("a", 15), queues=[a_queue(cohortName="org"), self.OTHER]))
        assert isinstance(decision, Wait)
        assert "insufficient quota for cpu in flavor default, request > maximum capacity (15 > 14)" in decision.message

    def test_cohorts_without_a_root_admit_nothing(self) -> None:
        circle = (Cohort(name="a", parent="b"), Cohort(name="b", parent="a"))
        [decision] = cycle(snapshot(a_slice("a"), queues=[a_queue(cohortName="a")], cohorts=circle))
        assert isinstance(decision, Wait)
        assert decision.message == "the cohorts a and b are each other's parent"

    @pytest.mark.parametrize("fair_sharing", list(FairSharing))
    def test_a_cohort_with_too_many_above_it_admits_nothing(self, fair_sharing: FairSharing) -> None:
        chain = tuple(Cohort(name=f"c{level}", parent=f"c{level - 1}" if level else "") for level in range(1000))

        def decided(level: int) -> Decision:
            made = snapshot(a_slice("a"), queues=[a_queue(cohortName=f"c{level}")], cohorts=chain)
            return decision(msgspec.structs.replace(made, fair_sharing=fair_sharing))

        assert isinstance(decided(MOST_LEVELS - 1), Admit)
        for level in (MOST_LEVELS, 999):
            found = decided(level)
            assert isinstance(found, Wait)
            assert found.message == f"its cohort has more than {MOST_LEVELS - 1} cohorts above it"


class TestPartial:
    """A job with 2 of 10 cores, and others that hold some: how many it is granted of those that it asks for."""

    def granted(self, asks: int, *, others: int = 0, partial: bool = True, **sets: Any) -> dict[str, int]:
        old = admitted(a_slice("a", 2))
        new = replacement(old, "b", asks, partial=partial)
        taken = [admitted(a_slice("other", others, job_uid="k"))] if others else []
        return {name: n for admit in admits(snapshot(old, new, *taken)) for name, n in admit.admission.counts.items()}

    def test_everything_where_there_is_room(self) -> None:
        assert self.granted(10) == {"main": 10}

    def test_as_many_as_fit(self) -> None:
        assert self.granted(64) == {"main": 10}
        assert self.granted(9, others=3) == {"main": 7}

    def test_one_more_pod_is_admitted_and_none_is_not(self) -> None:
        assert self.granted(9, others=7) == {"main": 3}
        assert self.granted(9, others=8) == {}

    def test_only_with_the_annotation(self) -> None:
        assert self.granted(64, partial=False) == {}

    def test_a_job_begins_whole_or_not_at_all(self) -> None:
        assert admits(snapshot(a_slice("a", 64, partial=True))) == []

    def test_all_pod_sets_get_the_same_part(self) -> None:
        old = admitted(a_slice("a", pod_sets=(a_pod_set("head", 1), a_pod_set("big", 1), a_pod_set("small", 3))))
        wanted = (a_pod_set("head", 1), a_pod_set("big", 9), a_pod_set("small", 7))
        new = msgspec.structs.replace(replacement(old, "b", 0, partial=True), pod_sets=wanted)
        [admit] = admits(snapshot(old, new))
        assert admit.admission.counts == {"head": 1, "big": 4, "small": 4}

    def test_a_shrinking_pod_set_makes_room(self) -> None:
        old = admitted(a_slice("a", pod_sets=(a_pod_set("left", 8), a_pod_set("right", 1))))
        new = msgspec.structs.replace(
            replacement(old, "b", 0, partial=True), pod_sets=(a_pod_set("left", 2), a_pod_set("right", 20))
        )
        [admit] = admits(snapshot(old, new))
        assert admit.admission.counts == {"left": 2, "right": 8}

    @pytest.mark.parametrize(
        ("have", "asks", "room", "expected"),
        [
            (4, 16, 10, {"main": 8}),
            (4, 16, 12, {"main": 12}),
            (4, 16, 7, {}),
            (0, 8, 7, {"main": 4}),
            (6, 16, 9, {"main": 8}),
            (6, 16, 7, {}),
        ],
        ids=["whole ones", "all that fit", "not one more", "the first", "a part of one is completed", "or left"],
    )
    def test_replicas_of_several_hosts_are_granted_whole(
        self, have: int, asks: int, room: int, expected: dict[str, int]
    ) -> None:
        old = admitted(a_slice("a", have))
        new = replacement(old, "b", asks, partial=True, replica_sizes={"main": 4})
        found = admits(snapshot(old, new, queues=[a_queue(quotas={"default": {"cpu": str(room)}})]))
        assert {name: n for admit in found for name, n in admit.admission.counts.items()} == expected

    def test_the_rest_is_charged_when_it_comes(self) -> None:
        old = admitted(a_slice("a", 2))
        first = replacement(old, "b", 9, partial=True)
        other = admitted(a_slice("other", 5, job_uid="k"))
        [part] = admits(snapshot(old, first, other))
        [holder] = apply([first], part)
        rest = replacement(holder, "c", 9, partial=True)
        assert admits(snapshot(holder, rest, other)) == []
        [whole] = admits(snapshot(holder, rest))
        assert whole.admission.counts == {"main": 9}


SELECTORS: dict[str, tuple[Any, bool]] = {
    "every namespace": ({}, True),
    "none": (None, False),
    "by a label": ({"matchLabels": {"kubernetes.io/metadata.name": "team"}}, True),
    "by another label": ({"matchLabels": {"kubernetes.io/metadata.name": "other"}}, False),
    "by an expression": (
        {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["x", "team"]}]},
        True,
    ),
    "all but some": (
        {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["team"]}]},
        False,
    ),
    "those with a label": ({"matchExpressions": [{"key": "tenant", "operator": "Exists"}]}, False),
    "those without": ({"matchExpressions": [{"key": "tenant", "operator": "DoesNotExist"}]}, True),
    "what is no selector": ({"matchExpressions": [{"key": "kubernetes.io/metadata.name"}]}, False),
    "a field that is none": ({"matchLabel": {"kubernetes.io/metadata.name": "team"}}, False),
}


@pytest.mark.parametrize(("selector", "expected"), SELECTORS.values(), ids=SELECTORS.keys())
def test_a_queue_takes_workloads_of_the_namespaces_that_it_selects(selector: Any, expected: bool) -> None:
    [decision] = cycle(snapshot(a_slice("a"), queues=[a_queue(namespaceSelector=selector)]))
    assert isinstance(decision, Admit) is expected
    if isinstance(decision, Wait):
        assert decision.reason == "Inadmissible"
        assert decision.message == "Workload namespace doesn't match ClusterQueue selector"


class TestRoom:
    """Admission by quota, and a cluster by room."""

    QUEUE = a_queue(quotas={"default": {"cpu": "20"}, "spot": {"cpu": "20"}})

    @staticmethod
    def cluster(name: str, **cores: int) -> Cluster:
        capacity = {FlavorName(flavor): {"cpu": count * 1000} for flavor, count in cores.items()}
        return Cluster(name=name, accepted=True, cordoned=False, connected=True, capacity=capacity)

    @staticmethod
    def place(world: Snapshot) -> tuple[str, set[str]]:
        found = admission_of(world)
        return found.cluster, {name for pod_set in found.admission.pod_sets for name in pod_set.flavors.values()}

    @pytest.mark.parametrize(
        ("clusters", "expected"),
        [
            ({"a": {"default": 2, "spot": 9}, "b": {"default": 4, "spot": 9}}, ("b", {"default"})),
            ({"a": {"default": 2, "spot": 3}, "b": {"default": 3, "spot": 4}}, ("b", {"spot"})),
            ({"a": {"default": 2, "spot": 4}, "b": {"default": 4}}, ("b", {"default"})),
            ({"a": {"spot": 4}}, ("a", {"spot"})),
        ],
        ids=["where there is room", "in the next flavor", "rather in the first flavor", "in the only one there is"],
    )
    def test_a_job_goes_where_a_flavor_has_room(
        self, clusters: dict[str, dict[str, int]], expected: tuple[str, set[str]]
    ) -> None:
        there = [self.cluster(name, **cores) for name, cores in clusters.items()]
        assert self.place(snapshot(a_slice("a", 4), queues=[self.QUEUE], clusters=there)) == expected

    def test_the_first_pods_of_a_running_job_get_the_flavor_with_room_on_its_cluster(self) -> None:
        old = a_slice("a", 0)
        begun = admission_of(snapshot(old, queues=[self.QUEUE], clusters=[self.cluster("a", default=2, spot=4)]))
        old = msgspec.structs.replace(old, admission=begun.admission, admitted=True, cluster="a")
        for cores, expected in (4, ("a", {"default"})), (3, ("a", {"spot"})):
            there = [self.cluster("a", default=cores, spot=4), self.cluster("b", default=9)]
            assert self.place(snapshot(old, replacement(old, "b", 4), queues=[self.QUEUE], clusters=there)) == expected

    def test_the_shortage_is_named_in_each_flavor_that_was_tried(self) -> None:
        there = [self.cluster("a", default=2, spot=2), self.cluster("b", default=3, spot=0)]
        assert decision(snapshot(a_slice("a", 4), queues=[self.QUEUE], clusters=there)) == Wait(
            key=a_slice("a").key,
            reason="NoPlace",
            message="no worker cluster can take it: "
            "a lacks 2 more cpu in flavor default or 2 more cpu in flavor spot, "
            "b lacks 1 more cpu in flavor default or 4 more cpu in flavor spot",
            would_admit="a worker cluster with room for it",
        )

    def test_a_flavor_without_quota_is_named_once_and_one_that_does_not_suit_never(self) -> None:
        queue = a_queue(quotas={"default": {"cpu": "20"}, "spot": {"cpu": "3"}, "gpu": {"cpu": "20"}})
        taint = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
        flavors = [a_flavor(), a_flavor("spot"), a_flavor("gpu", taints=(taint,))]
        there = [self.cluster(name, default=2, spot=9, gpu=9) for name in "ab"]
        wait = decision(snapshot(a_slice("a", 4), queues=[queue], flavors=flavors, clusters=there))
        assert isinstance(wait, Wait)
        assert wait.message == (
            "no worker cluster can take it: a lacks 2 more cpu in flavor default, "
            "b lacks 2 more cpu in flavor default; the quota lacks 1 more cpu in flavor spot"
        )

    def test_what_one_cycle_has_placed_counts_for_the_next_slice(self) -> None:
        jobs = [a_slice(name, 3, job_uid=name) for name in "abc"]
        there = [self.cluster("x", default=4), self.cluster("y", default=4)]
        assert [admit.cluster for admit in admits(snapshot(*jobs, clusters=there))] == ["x", "y"]

    def test_a_chain_grows_only_as_far_as_its_cluster_has_room(self) -> None:
        old, there = admitted(a_slice("a", 3)), self.cluster("worker", default=8)
        elsewhere = self.cluster("other", default=100)
        assert admission_of(snapshot(old, replacement(old, "b", 8), clusters=[there, elsewhere])).cluster == "worker"
        world = snapshot(old, replacement(old, "b", 10), clusters=[there, elsewhere])
        assert decision(world) == Wait(
            key=a_slice("b").key,
            reason="NoPlace",
            message="cluster worker, where the job runs, has no room for it: 2 more cpu in flavor default needed",
            would_admit="2 more cpu in flavor default on cluster worker",
        )

    def test_a_chain_keeps_the_quota_to_grow_until_evicted_jobs_have_left_its_cluster(self) -> None:
        # Else the younger job would get it, and be preempted for the chain at once.
        there = [self.cluster("worker", default=8), self.cluster("other", default=8)]
        leaving = admitted(a_slice("leaving", 5, job_uid="leaving"), queue="other")
        leaving = msgspec.structs.replace(leaving, evicted=True, admitted=False)
        old, younger = admitted(a_slice("a", 3)), a_slice("c", 5, job_uid="c", created="2026-01-09T00:00:00Z")
        queues = [a_queue(), a_queue("other")]
        world = snapshot(leaving, old, replacement(old, "b", 8), younger, queues=queues, clusters=there)
        decided = {each.key: each for each in cycle(world)}
        waits = decided[a_slice("b").key]
        assert isinstance(waits, Wait)
        # The room may come free by a job that has no quota in common with this one.
        assert waits.reason == NO_PLACE
        assert waits.message == (
            "cluster worker, where the job runs, has no room for it: 5 more cpu in flavor default needed. "
            "Fits when those are gone who are evicted already"
        )
        assert waits.reason == NO_PLACE, "by that it is found when room on a cluster is freed"
        assert isinstance(decided[younger.key], Wait)

    def test_a_partial_scale_up_takes_what_the_cluster_has(self) -> None:
        old, there = admitted(a_slice("a", 3)), self.cluster("worker", default=8)
        found = admission_of(snapshot(old, replacement(old, "b", 10, partial=True), clusters=[there]))
        assert found.admission.counts == {"main": 8}

    def test_without_a_report_only_the_quota_counts(self) -> None:
        unlimited = Cluster(name="worker", accepted=True, cordoned=True, connected=True)
        old = admitted(a_slice("a", 3))
        assert admission_of(snapshot(old, replacement(old, "b", 10), clusters=[unlimited])).cluster == "worker"

    def test_no_room_blocks_a_strict_queue_as_no_quota_does(self) -> None:
        jobs = [a_slice("a", 5, job_uid="a"), a_slice("b", 1, job_uid="b")]
        there = [self.cluster("x", default=4)]
        strict = a_queue(queueingStrategy="StrictFIFO")
        assert [len(admits(snapshot(*jobs, queues=[queue], clusters=there))) for queue in (strict, a_queue())] == [0, 1]

    @pytest.mark.parametrize(
        ("strategy", "expected"),
        [("", "a"), ("spread", "a"), ("pack", "b"), ("ordered", "c")],
    )
    def test_a_queue_names_its_strategy(self, strategy: str, expected: str) -> None:
        there = [self.cluster("a", default=9), self.cluster("b", default=9), self.cluster("c", default=9)]
        there[2] = msgspec.structs.replace(there[2], priority=1)
        running = [admitted(a_slice(name, 1, job_uid=name), cluster=name) for name in "bc"]
        running[0] = with_counts(admitted(a_slice("b", 3, job_uid="b"), cluster="b"), main=3)
        queue = msgspec.structs.replace(a_queue(), placement=strategy)
        [found] = admits(snapshot(*running, a_slice("new", job_uid="new"), queues=[queue], clusters=there))
        assert found.cluster == expected

    def test_the_managers_strategy_is_for_queues_that_name_none(self) -> None:
        there = [self.cluster("a", default=9), msgspec.structs.replace(self.cluster("b", default=9), priority=1)]
        world = snapshot(a_slice("new"), clusters=there)
        assert admission_of(msgspec.structs.replace(world, strategy=Strategy.ORDERED)).cluster == "b"

    def test_an_unknown_strategy_is_named(self) -> None:
        queue = msgspec.structs.replace(a_queue(), placement="biggest")
        found = decision(snapshot(a_slice("a"), queues=[queue]))
        assert isinstance(found, Wait)
        assert found.reason == "Inadmissible"
        assert found.message == "ClusterQueue cq wants placement 'biggest', and knows only spread, pack, ordered"

    @pytest.mark.parametrize(
        ("selector", "expected"), [("", "a"), ("region=eu", "b"), ("region notin (eu)", "a"), ("!region", "a")]
    )
    def test_a_job_selects_its_clusters(self, selector: str, expected: str) -> None:
        there = [self.cluster("a", default=9), msgspec.structs.replace(self.cluster("b", default=9), labels=EU)]
        assert admission_of(snapshot(a_slice("a", cluster_selector=selector), clusters=there)).cluster == expected

    @pytest.mark.parametrize(
        ("rules", "why"),
        [
            ({"namespace_selector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, "namespace team"),
            ({"cluster_queues": frozenset({"other"})}, "ClusterQueue cq"),
        ],
        ids=["another namespace", "another queue"],
    )
    def test_no_selector_leads_to_a_cluster_that_takes_other_tenants(self, rules: dict[str, Any], why: str) -> None:
        closed = msgspec.structs.replace(self.cluster("a", default=9), labels=EU, **rules)
        there = [closed, self.cluster("b", default=9)]
        assert admission_of(snapshot(a_slice("a"), clusters=there)).cluster == "b"
        found = decision(snapshot(a_slice("a", cluster_selector="region=eu"), clusters=there))
        assert isinstance(found, Wait)
        assert found.reason == "NoPlace"
        assert f"a takes no jobs of {why}, b is not among the clusters that the job selects" in found.message

    def test_a_cluster_that_lies_about_its_room_gets_its_cap(self) -> None:
        liar = msgspec.structs.replace(self.cluster("a", default=10**6), max_room={"cpu": 2000})
        world = snapshot(
            *(a_slice(name, job_uid=name) for name in "uvwxyz"),
            clusters=[liar, msgspec.structs.replace(self.cluster("b", default=9), priority=-1)],
        )
        found = admits(msgspec.structs.replace(world, strategy=Strategy.ORDERED))
        assert [admit.cluster for admit in found][:3] == ["a", "a", "b"]
        assert sum(admit.cluster == "a" for admit in found) == 2

    def test_an_invalid_selector_is_named(self) -> None:
        found = decision(snapshot(a_slice("a", cluster_selector="region=eu=us")))
        assert isinstance(found, Wait)
        assert found.reason == "Inadmissible"
        assert "slicebus.dev/cluster-selector is no label selector" in found.message


EU = {"region": "eu"}
