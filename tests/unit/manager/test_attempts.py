"""How the earlier admissions of a slice ended, as its Workload keeps it."""

from slicebus.manager.decide.job import attempts
from slicebus.proto.messages import Manifest
from slicebus.slices.api.conditions import with_findings
from slicebus.slices.workload.workload import Slice
from unit.manager.objects import a_workload, condition

MINUTE = "2026-01-01T00:{:02}:00Z"


def evicted(workload: Manifest, minute: int, *, why: str = "make room") -> None:
    """It was admitted at that minute, and is evicted in the next one."""
    made = {
        "QuotaReserved": condition("QuotaReserved", True) | {"lastTransitionTime": MINUTE.format(minute)},
        "Evicted": condition("Evicted", True, "Preempted", why) | {"lastTransitionTime": MINUTE.format(minute + 1)},
    }
    others = [entry for entry in workload["status"].get("conditions", []) if entry["type"] not in made]
    workload["status"]["conditions"] = [*others, *made.values()]
    finding = attempts.ended(workload, Slice.from_manifest(workload))
    workload["status"]["conditions"] = with_findings(workload, finding, now=MINUTE.format(minute + 1))


def test_there_are_none_before_an_eviction() -> None:
    assert attempts.earlier(a_workload(count=2, admitted=2)) == []


def test_each_is_kept_with_its_reason() -> None:
    workload = a_workload(count=2, admitted=2)
    evicted(workload, 1)
    evicted(workload, 7, why="The cluster east\nis lost; until it is back")
    first, second = attempts.earlier(workload)
    assert first.admitted == (MINUTE.format(1), "admitted on cluster east for main=2")
    assert first.evicted == (MINUTE.format(2), "Preempted: make room")
    assert second.evicted == (MINUTE.format(8), "Preempted: The cluster east is lost; until it is back")


def test_the_newest_are_kept_and_a_long_reason_is_cut() -> None:
    workload = a_workload(count=2, admitted=2)
    for minute in range(0, 20, 2):
        evicted(workload, minute, why=f"why {minute} {'x' * 1000}")
    kept = attempts.earlier(workload)
    assert [attempt.admitted[0] for attempt in kept] == [MINUTE.format(minute) for minute in range(10, 20, 2)]
    assert all(len(attempt.evicted[1]) == 301 for attempt in kept)


def test_a_text_of_somebody_else_is_left_out() -> None:
    said = condition("slicebus.dev/EvictedBefore", True, "Other", "whatever\n\nit says")
    assert attempts.earlier(a_workload(conditions=(said,))) == []
