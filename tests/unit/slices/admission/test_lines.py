"""A cycle decides thousands that are alike by the first few of them, as if each came by itself."""

import os
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from slicebus.slices.admission import waiting_queue
from slicebus.slices.admission.budget_limit import SpentBudget, SpentBudgets
from slicebus.slices.admission.cycle import Admit, Wait, cycle
from slicebus.slices.admission.cycle import _Cycle as Cycle
from slicebus.slices.admission.lines import Lines, kind_of
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.quota.quota import ClusterQueue, Cohort, LocalQueue
from slicebus.slices.workload.elasticity import Elasticity
from slicebus.slices.workload.workload import Slice
from support.lines import compared, in_lines
from unit.slices.builders import WORKER, a_pod_set, a_queue, a_slice, admitted, replacement, snapshot

WORLDS = int(os.environ.get("WORLDS", "250"))
"""How many random worlds are decided in both ways."""
PARTS = 10
POLICIES = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
SPENT = SpentBudget(of="ClusterQueue a", resource="cpu", allowance="1h/1d", back_at="", drains=False)


def a_world(random: Random) -> Snapshot:
    """Trees of quota in which many wait who are alike; in some the clusters are full before the quota is in use."""
    is_crowded = random.random() < 0.4
    queues = [(a_lender if is_crowded else a_random_queue)(random, name) for name in "abcd"[: random.randint(1, 4)]]
    sides = [{"metadata": {"name": name}, "spec": {"parentName": "top"}} for name in ("left", "right")]
    locals = [
        LocalQueue(namespace="team", name=f"{queue.name}{index}", cluster_queue=queue.name, held=False)
        for queue in queues
        for index in range(2)
    ]
    kinds = [a_kind(random, random.choice(locals).name, number) for number in range(random.randint(1, 6))]
    slices = [slice for number in range(random.randint(0, 8)) for slice in a_running_job(random, queues, number)]
    slices += [one_of(random, random.choice(kinds), number) for number in range(random.randint(10, 50))]
    world = snapshot(
        *slices,
        queues=queues,
        cohorts=map(Cohort.from_manifest, sides),
        locals=locals,
        clusters=clusters(random, is_crowded),
    )
    return msgspec.structs.replace(
        world,
        fair_sharing=random.choice((FairSharing.OFF, FairSharing.OFF, FairSharing.BOTH)),
        spent_budgets=SpentBudgets(of_queues={"a": (SPENT,)} if random.random() < 0.1 else {}),
        pods_before_jobs=random.random() < 0.5,
    )


def a_random_queue(random: Random, name: str) -> ClusterQueue:
    def quota() -> Any:
        nominal = str(random.choice((0, 2, 8, 16)))
        return random.choice((nominal, (nominal, str(random.choice((0, 2, 6))), None), (nominal, None, "2")))

    flavors = {flavor: {"cpu": quota()} for flavor in ("default", "spot")[: random.randint(1, 2)]}
    reclaim = random.choice(("Never", "LowerPriority", "Any"))
    preemption: dict[str, Any] = {"withinClusterQueue": random.choice(POLICIES), "reclaimWithinCohort": reclaim}
    if reclaim != "Never" and random.random() < 0.4:
        preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
    spec: dict[str, Any] = {"preemption": preemption}
    if random.random() < 0.8:
        spec["cohortName"] = random.choice(("left", "left", "right", "top"))
    if random.random() < 0.2:
        spec["queueingStrategy"] = "StrictFIFO"
    if random.random() < 0.4:
        spec["flavorFungibility"] = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
    return a_queue(name, flavors, **spec)


def a_lender(random: Random, name: str) -> ClusterQueue:
    """A queue that borrows soon, of one flavor, which preempts nobody or seldom finds anybody."""
    reclaim = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": random.choice(("Never", "Any"))}
    spec = {"cohortName": "left"} | ({"preemption": reclaim} if random.random() < 0.5 else {})
    return a_queue(name, {"default": {"cpu": str(random.choice((0, 0, 4, 24)))}}, **spec)


def clusters(random: Random, is_crowded: bool) -> Sequence[Cluster]:
    """One without a limit, or two that are soon full."""
    if not is_crowded and random.random() < 0.5:
        return (WORKER,)
    rooms: list[Any] = [
        {"default": {"cpu": random.choice((2000, 8000))}, "spot": {"cpu": random.choice((0, 8000))}} for _ in range(2)
    ]
    return [
        Cluster(name=name, accepted=True, cordoned=False, connected=True, capacity=room)
        for name, room in zip(("worker", "other"), rooms, strict=True)
    ]


def a_kind(random: Random, queue: str, number: int) -> Slice:
    spec = {"nodeSelector": {"disk": "ssd"}} if random.random() < 0.1 else {}
    pods = a_pod_set(count=random.choice((1, 1, 2, 3, 5, 30)), **spec)
    more = (a_pod_set("more", count=random.randint(1, 3)),) if random.random() < 0.3 else ()
    return a_slice(f"kind-{number}", queue=queue, priority=random.choice((0, 0, 0, 5, 9)), pod_sets=(pods, *more))


def one_of(random: Random, kind: Slice, number: int) -> Slice:
    """Another one of a kind, which may have a claim."""
    name, shown = f"wait-{number}", {}
    if random.random() < 0.08:
        reason = random.choice(("Pending", "WaitingForPreemptedWorkloads"))
        shown = {"QuotaReserved": {"type": "QuotaReserved", "status": "False", "reason": reason, "message": "m"}}
    return msgspec.structs.replace(
        kind, name=name, uid=f"uid-{name}", job_uid=name, conditions=shown, created=a_time(random)
    )


def a_time(random: Random) -> str:
    return f"2026-01-01T00:{random.randint(0, 59):02}:00Z"


def a_running_job(random: Random, queues: Sequence[ClusterQueue], number: int) -> Iterator[Slice]:
    """A job with quota, which may be leaving for one that waits, or grow."""
    name, queue = f"run-{number}", random.choice(queues)
    flavor = random.choice([quota.name for group in queue.resource_groups for quota in group.flavors])
    slice = a_slice(
        name,
        count=random.randint(1, 3),
        job_uid=name,
        queue=f"{queue.name}0",
        created=a_time(random),
        priority=random.choice((0, 3, 5)),
        elasticity=Elasticity(least={"main": 1}) if random.random() < 0.4 else Elasticity(),
    )
    held = admitted(slice, flavor=flavor, queue=queue.name)
    if random.random() < 0.15:
        text = (
            f"Preempted to accommodate a workload (UID: uid-wait-{random.randint(0, 9)}, JobUID: x) due to it; "
            "preemptor path: /a; preemptee path: /b"
        )
        conditions = {
            type: {"type": type, "status": "True", "reason": "Preempted", "message": text}
            for type in ("Evicted", "Preempted")
        }
        held = msgspec.structs.replace(held, evicted=True, admitted=False, conditions=conditions)
    elif random.random() < 0.3:
        more, partial = held.counts["main"] + 1, random.random() < 0.5
        same = {"queue": slice.queue, "priority": slice.priority, "created": a_time(random)}
        yield replacement(held, f"next-{number}", more, partial=partial, **same)
    yield held


def first_difference(seeds: range) -> str:
    """How the two ways differ in one of the worlds; empty where they never do."""
    for seed in seeds:
        random = Random(seed)
        if found := compared(a_world(random), front=random.choice((1, 1, 2, 3))):
            return f"{seed}: {found}"
    return ""


@pytest.mark.parametrize("part", range(PARTS))
def test_decisions_are_those_about_everybody_by_itself(part: int) -> None:
    assert not first_difference(range(part * WORLDS // PARTS, (part + 1) * WORLDS // PARTS))


@pytest.mark.parametrize(
    "without",
    [
        patch.object(waiting_queue.WaitingQueue, "resume", lambda *_, **__: False),
        patch.object(waiting_queue.Rest, "last_before", lambda *_: None),
        patch.object(waiting_queue.Rest, "first_after", lambda *_: None),
        patch.object(waiting_queue, "in_lines", lambda snapshot, _: ([*snapshot.behind], [])),
    ],
    ids=[
        "nobody goes on",
        "none has its turn before others",
        "all are decided before",
        "claims do not count",
    ],
)
def test_these_worlds_notice_what_is_left_out(without: Any) -> None:
    with without, patch("slicebus.slices.admission.cycle.in_lines", lambda *told: waiting_queue.in_lines(*told)):
        assert first_difference(range(600))


@pytest.mark.parametrize("more", [5, 9], ids=["and for the other one", "and none for the other one"])
def test_whoever_is_older_may_find_victims_in_a_flavor_for_one_of_its_pod_sets(more: int) -> None:
    queue = a_queue(
        quotas={"default": {"cpu": "8"}, "spot": {"cpu": "8"}},
        preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"},
        flavorFungibility={"whenCanPreempt": "MayStopSearch"},
    )
    others = [
        admitted(a_slice(name, count, job_uid=name, priority=priority), flavor=flavor)
        for name, count, priority, flavor in (("h1", 6, 9, "default"), ("h2", 7, 9, "spot"), ("l", 1, -1, "spot"))
    ]
    newer = admitted(a_slice("n", 2, job_uid="n", created="2026-01-01T00:00:30Z"))
    pods = (a_pod_set("head"), a_pod_set("more", count=more))
    line = [
        a_slice(name, job_uid=name, created=f"2026-01-01T00:00:{second}Z", pod_sets=pods)
        for name, second in (("a", 10), ("b", 11), ("c", 40), ("d", 41))
    ]
    world = snapshot(*others, newer, *line, queues=[queue])
    assert not compared(world, front=1)
    messages = {each.message.rpartition(": ")[2] for each in cycle(world) if isinstance(each, Wait)}
    assert len(messages) == 2, "the older ones stop at the first flavor"


def waiting(*names: str, count: int = 5, **changes: Any) -> list[Slice]:
    """Those of one line, in order."""
    return [
        a_slice(name, count, job_uid=name, created=f"2026-01-01T00:00:{number:02}Z", **changes)
        for number, name in enumerate(names)
    ]


def shown(slice: Slice, wait: Wait) -> Slice:
    condition = {"type": "QuotaReserved", "status": "False", "reason": wait.reason, "message": wait.message}
    return msgspec.structs.replace(slice, conditions={"QuotaReserved": condition})


class TestWhatIsTold:
    LINE = waiting("a", "b", "c", "d")
    FULL = admitted(a_slice("full", 8, job_uid="full"))

    def test_the_first_ones_are_told_numbers_and_the_others_none(self) -> None:
        decided = cycle(in_lines(snapshot(self.FULL, *self.LINE), front=2))
        messages = {each.key: each.message.rpartition(": ")[2] for each in decided if isinstance(each, Wait)}
        assert messages == {
            "team/a": "insufficient unused quota for cpu in flavor default, 3 more needed",
            "team/b": "insufficient unused quota for cpu in flavor default, 3 more needed",
            "team/c": "insufficient unused quota for cpu in flavor default, … more needed",
            "team/d": "insufficient unused quota for cpu in flavor default, … more needed",
        }

    def test_whoever_shows_that_already_is_told_nothing(self) -> None:
        told = {each.key: each for each in cycle(in_lines(snapshot(self.FULL, *self.LINE), front=2))}
        showing = [shown(slice, each) for slice in self.LINE if isinstance(each := told[slice.key], Wait)]
        newcomer = waiting("a", "b", "c", "d", "e")[-1]
        decided = cycle(in_lines(snapshot(self.FULL, *showing, newcomer), front=2))
        assert [each.key for each in decided] == ["team/a", "team/b", "team/e"]

    def test_the_number_that_wait_changes_no_number_of_assessments(self) -> None:
        def assessments(names: Sequence[str]) -> int:
            world = in_lines(snapshot(self.FULL, *waiting(*names)), front=2)
            with patch.object(Cycle, "_assess", autospec=True, side_effect=Cycle._assess) as assess:
                cycle(world)
            return assess.call_count

        assert assessments([f"w{number:03}" for number in range(500)]) == assessments(["a", "b", "c"]) == 3

    def test_as_many_are_admitted_as_fit(self) -> None:
        decided = cycle(in_lines(snapshot(*waiting(*"abcdef", count=3)), front=1))
        assert [each.key for each in decided if isinstance(each, Admit)] == ["team/a", "team/b", "team/c"]

    def test_nobody_behind_others_is_told_numbers_in_a_queue_that_is_missing(self) -> None:
        decided = cycle(in_lines(snapshot(*waiting("a", "b", queue="7")), front=1))
        assert [(each.key, each.message) for each in decided if isinstance(each, Wait)] == [
            ("team/a", "LocalQueue 7 doesn't exist"),
            ("team/b", "LocalQueue … doesn't exist"),
        ]


class TestLines:
    def test_whoever_differs_in_what_a_cycle_reads_is_in_another_line(self) -> None:
        one = a_slice("a")
        others: list[dict[str, Any]] = [
            {"queue": "other"},
            {"namespace": "other"},
            {"priority": 1},
            {"pod_sets": (a_pod_set(count=2),)},
            {"pod_sets": (a_pod_set(nodeSelector={"disk": "ssd"}),)},
            {"cluster_selector": "zone=a"},
            {"scheduler": "kai"},
            {"avoids": frozenset(["east"])},
            {"cluster": "east"},
            {"elastic": False},
            {"replica_sizes": {"main": 2}},
            {"elasticity": Elasticity(least={"main": 1})},
        ]
        assert kind_of(msgspec.structs.replace(one, name="b", uid="x", created="later", job_uid="k")) == kind_of(one)
        assert len({kind_of(one), *(kind_of(msgspec.structs.replace(one, **each)) for each in others)}) == 13

    def test_a_slice_of_a_job_with_others_is_decided_by_itself(self) -> None:
        lines = Lines(front=1)
        for slice in (line := waiting(*"abc")):
            lines.put(slice, is_only=slice is not line[2])
        first, behind = lines.waiting_in([("team", "lq")])
        assert [slice.name for slice in first] == ["c", "a"]
        assert [slice.name for those in behind for slice in those.line.members[those.start :]] == ["b"]

    def test_who_leaves_makes_room_at_the_front(self) -> None:
        lines = Lines(front=1)
        for slice in (line := waiting(*"abc")):
            lines.put(slice, is_only=True)
        lines.remove(line[0].key)
        first, [behind] = lines.waiting_in([("team", "lq")])
        assert [slice.name for slice in (*first, *behind.line.members[behind.start :])] == ["b", "c"]
        for slice in line:
            lines.remove(slice.key)
        assert lines.waiting_in([("team", "lq")]) == ([], [])
