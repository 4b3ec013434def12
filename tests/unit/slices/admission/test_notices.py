"""Whoever waits for pods that have notice is told until when."""

from typing import Any

import pytest
from msgspec import structs

from slicebus.slices.admission.awaited import Losers
from slicebus.slices.admission.cycle import Wait, cycle
from slicebus.slices.admission.notices import Notices, named
from slicebus.slices.api.kueue import Condition
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.elasticity import Elasticity
from slicebus.slices.workload.reclaimed import Beneficiary, Reclaimed, take_back
from slicebus.slices.workload.workload import Slice, SliceKey
from unit.slices.admission.test_preemption import holding, waiting, world
from unit.slices.admission.test_shrinks import elastic
from unit.slices.builders import with_counts

BEGAN = "2026-01-01T12:00:00Z"
FOR = Beneficiary(workload="team/w", uid="uid-w", job_uid="job-w")


def shrinking(*, notice_s: float = 90.0) -> Slice:
    slice = elastic("a", 10, 1, since=1)
    return structs.replace(slice, reclaimed=taken_from(slice, 7, notice_s=notice_s))


def taken_from(slice: Slice, to: int, *, notice_s: float, by: Beneficiary = FOR, at: str = BEGAN) -> Reclaimed:
    return take_back(
        slice.reclaimed,
        slice.held_counts,
        {"main": to},
        held=slice.held_counts,
        beneficiary=by,
        at=at,
        reason="",
        message="",
        notice_s=notice_s,
    )


def evicted(*, notice_s: float = 120.0, preempted: bool = True) -> Slice:
    message = (
        "Preempted to accommodate a workload (UID: uid-w, JobUID: job-w) due to prioritization in the ClusterQueue; "
        "preemptor path: /cq; preemptee path: /cq"
    )
    true: dict[str, Any] = {"status": "True", "lastTransitionTime": BEGAN, "message": message}
    conditions = {Condition.EVICTED: true | {"reason": "Preempted"}} | (
        {Condition.PREEMPTED: true} if preempted else {}
    )
    slice = holding("a", 10, since=1)
    said = Elasticity(notice_s=notice_s)
    return structs.replace(slice, evicted=True, conditions=slice.conditions | conditions, elasticity=said)


UNTIL: dict[str, tuple[Slice, float, str]] = {
    "a shrink, by its note": (shrinking(), 0.0, "2026-01-01T12:01:30Z"),
    "a shrink without": (shrinking(notice_s=0.0), 600.0, ""),
    "an eviction": (evicted(), 600.0, "2026-01-01T12:02:00Z"),
    "as far as it is allowed": (evicted(), 60.0, "2026-01-01T12:01:00Z"),
    "not allowed": (evicted(), 0.0, ""),
    "evicted for another reason": (evicted(preempted=False), 600.0, ""),
    "it stays": (holding("a", 10, since=1), 600.0, ""),
}


@pytest.mark.parametrize(("slice", "cap_s", "until"), UNTIL.values(), ids=UNTIL.keys())
def test_until_when(slice: Slice, cap_s: float, until: str) -> None:
    said = Notices([slice], {}, cap_s=cap_s).told([slice.key], "uid-w")
    assert said == (f", which have notice until {until}" if until else "")


@pytest.mark.parametrize(
    ("said", "until"),
    [("30s", "2026-01-01T12:00:30Z"), ("0", ""), ("5m", "2026-01-01T12:01:00Z"), ("soon", "2026-01-01T12:01:00Z")],
)
def test_a_queue_may_allow_less_than_the_manager(said: str, until: str) -> None:
    queue = ClusterQueue.from_manifest({"metadata": {"name": "cq", "annotations": {"slicebus.dev/notice": said}}})
    told = Notices([evicted()], {"cq": queue}, cap_s=60.0).told([evicted().key], "uid-w")
    assert told == (f", which have notice until {until}" if until else "")


def test_the_last_one_counts() -> None:
    first, last = shrinking(), structs.replace(shrinking(notice_s=120.0), name="b")
    assert Notices([first, last], {}, cap_s=0.0).told([first.key, last.key], "uid-w").endswith("12:02:00Z")


@pytest.mark.parametrize("victim", [shrinking(), evicted(notice_s=90.0)], ids=["shrink", "eviction"])
def test_the_preemptor_says_so(victim: Slice) -> None:
    snapshot = structs.replace(world(victim, waiting("w", 3, 1)), notice_cap_s=600.0)
    [wait] = cycle(snapshot)
    assert isinstance(wait, Wait)
    for text in (wait.message, wait.would_admit):
        assert text.endswith(", which have notice until 2026-01-01T12:01:30Z"), text


def test_an_eviction_is_told_what_its_order_says() -> None:
    """Its job, its queue or the manager may say another notice since."""
    victim = evicted(notice_s=10.0)
    told = Notices([victim], {}, cap_s=60.0, told_s={victim.key: 300.0}).told([victim.key], "uid-w")
    assert told.endswith("12:05:00Z")


@pytest.mark.parametrize(("notice_s", "until"), [(10.0, "12:03:20Z"), (600.0, "12:10:00Z"), (0.0, "12:03:20Z")])
def test_an_eviction_leaves_those_their_time_that_were_told_of_a_shrink(notice_s: float, until: str) -> None:
    victim = structs.replace(evicted(notice_s=notice_s), reclaimed=shrinking(notice_s=200.0).reclaimed)
    assert Notices([victim], {}, cap_s=600.0).told([victim.key], "uid-w").endswith(until)


V = Beneficiary(workload="team/v", uid="uid-v", job_uid="job-v")
OF_TWO: dict[str, tuple[float, float, str, str]] = {
    "the second one waits longer": (90.0, 90.0, "12:01:30Z", "12:02:30Z"),
    "its notice is shorter": (90.0, 5.0, "12:01:30Z", "12:01:30Z"),
    "the first one was told nothing": (0.0, 90.0, "", "12:02:30Z"),
}


@pytest.mark.parametrize(("first_s", "second_s", "first", "second"), OF_TWO.values(), ids=OF_TWO.keys())
def test_each_one_waits_for_the_pods_that_go_for_it(first_s: float, second_s: float, first: str, second: str) -> None:
    victim = shrinking(notice_s=first_s)
    note = taken_from(victim, 5, notice_s=second_s, by=V, at="2026-01-01T12:01:00Z")
    notices = Notices([victim := structs.replace(victim, reclaimed=note)], {}, cap_s=0.0)
    said = [notices.told([victim.key], uid).rpartition("T")[2] for uid in ("uid-w", "uid-v")]
    assert said == [first, second]


def test_who_has_got_its_pods_before_waits_for_no_others() -> None:
    """It was preempted itself since then, and comes by its rank."""
    before = shrinking()
    assert before.reclaimed is not None
    done = structs.replace(before, reclaimed=structs.replace(before.reclaimed, done=True))
    note = taken_from(with_counts(done, main=7), 6, notice_s=0.0, by=V)
    losers = Losers([], [structs.replace(before, reclaimed=note)])
    assert (losers.preemptors, losers.shrunk_for("uid-w")) == ({"uid-v"}, set())


def test_the_first_are_named() -> None:
    assert named([SliceKey(name) for name in "dcba"]) == "a, b, c and others"
