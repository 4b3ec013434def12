"""Workloads that have preempted each other in turn do not begin again at once."""

import msgspec
import pytest

from slicebus.slices.admission.cycle import Wait, cycle
from slicebus.slices.workload.workload import Slice, SliceKey
from unit.slices.admission.test_preemption import OWN, admitted_names, cohort, evicted, holding, queue, waiting, world

SINCE = "2026-01-01T12:00:00Z"
LATER = "2026-01-01T12:00:30Z"
BEFORE = "2026-01-01T11:59:59Z"


def preempted(slice: Slice, by: str, at: str) -> Slice:
    """A slice that another job has preempted last."""
    message = (
        f"Preempted to accommodate a workload (UID: uid-of-some-slice, JobUID: job-{by}) due to prioritization in the"
        " ClusterQueue; preemptor path: /cq; preemptee path: /cq"
    )
    condition = {"status": "True", "lastTransitionTime": at, "message": message}
    if slice.admission is not None:
        condition |= {"status": "False", "message": f"Previously: {message}"}
    return msgspec.structs.replace(slice, conditions=slice.conditions | {"Preempted": condition})


HISTORIES: dict[str, tuple[dict[str, tuple[str, str]], str | None, str]] = {
    "each has preempted the other": ({"high": ("low", LATER), "low": ("high", SINCE)}, SINCE, "each other:"),
    "by way of a third": (
        {"high": ("third", LATER), "third": ("low", LATER), "low": ("high", LATER)},
        SINCE,
        "each other by way of 1 more:",
    ),
    "it was preempted for the victim, which was not preempted for it": ({"high": ("low", LATER)}, SINCE, ""),
    "it has preempted the victim before": ({"low": ("high", LATER)}, SINCE, ""),
    "too long ago": ({"high": ("low", BEFORE), "low": ("high", LATER)}, SINCE, ""),
    "nobody looks for rings": ({"high": ("low", LATER), "low": ("high", LATER)}, None, ""),
    "a ring of others": (
        {"high": ("third", LATER), "third": ("fourth", LATER), "fourth": ("third", LATER), "low": ("high", LATER)},
        SINCE,
        "",
    ),
    "nobody was ever preempted": ({}, SINCE, ""),
}


@pytest.mark.parametrize(("history", "since", "told"), HISTORIES.values(), ids=HISTORIES.keys())
def test_a_ring_that_has_gone_round_ends(history: dict[str, tuple[str, str]], since: str | None, told: str) -> None:
    slices = [
        waiting("high", 8, 10),
        holding("low", 5),
        holding("third", 1, 20),
        holding("fourth", 1, 20),
    ]
    slices = [preempted(slice, *history[slice.name]) if slice.name in history else slice for slice in slices]
    decided = cycle(msgspec.structs.replace(world(*slices), preemption_cycles_since=since))
    assert set(evicted(decided)) == (set() if told else {"low"})
    [wait] = [each for each in decided if isinstance(each, Wait)]
    assert told in wait.message
    assert ("team/low" in wait.message) is bool(told)


VICTIMS: dict[str, tuple[tuple[str, str] | None, int, str | None, bool]] = {
    "preempted for it": (("high", LATER), 8, SINCE, True),
    "never preempted": (None, 8, SINCE, False),
    "preempted for another": (("third", LATER), 8, SINCE, False),
    "preempted for it too long ago": (("high", BEFORE), 8, SINCE, False),
    "preempted for it, and it cannot be helped": (("high", LATER), 20, SINCE, False),
    "nobody looks for rings": (("high", LATER), 8, None, False),
}


@pytest.mark.parametrize(("history", "cores", "since", "is_behind"), VICTIMS.values(), ids=VICTIMS.keys())
def test_a_victim_comes_after_a_preemptor_that_waits(
    history: tuple[str, str] | None, cores: int, since: str | None, is_behind: bool
) -> None:
    """`high` has to wait until `big` has gone. Beside both there is room for `low`."""
    low = waiting("low", 2)
    slices = [waiting("high", cores, 10), holding("big", 6), preempted(low, *history) if history else low]
    decided = cycle(msgspec.structs.replace(world(*slices), preemption_cycles_since=since))
    assert admitted_names(decided) == (set() if is_behind else {"low"})
    [told] = [each.message for each in decided if isinstance(each, Wait) and each.key == "team/low"] or [""]
    assert ("preempted for team/high" in told) is is_behind


def test_a_job_that_has_quota_again_grows_beside_its_preemptor() -> None:
    low = preempted(holding("low", 1), "high", LATER)
    growth = waiting("low-2", 2, job_uid=low.job_uid, replaces=SliceKey("team/low"))
    slices = [waiting("high", 8, 10), holding("big", 6, -1), low, growth]
    decided = cycle(msgspec.structs.replace(world(*slices), preemption_cycles_since=SINCE))
    assert "low-2" in admitted_names(decided)


@pytest.mark.parametrize(("parent", "is_behind"), [("all", True), ("", False)], ids=["one tree", "trees apart"])
def test_a_victim_waits_only_behind_one_of_its_own_tree(parent: str, is_behind: bool) -> None:
    """The cohort of the preemptor's queue may have left the victim's since."""
    slices = [waiting("high", 8, 10), holding("big", 6), preempted(waiting("low", 2, queue="other"), "high", LATER)]
    queues = [queue(cohort="team", **OWN), queue("other", "1", cohort="all", **OWN)]
    given = world(*slices, queues=queues, cohorts=[cohort("team", parent), cohort("all", cores=2)])
    decided = cycle(msgspec.structs.replace(given, preemption_cycles_since=SINCE))
    assert admitted_names(decided) == (set() if is_behind else {"low"})
