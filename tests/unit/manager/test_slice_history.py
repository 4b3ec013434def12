"""Finished slices are kept by number and age, and a slice that is still needed stays anyway."""

from datetime import datetime
from typing import Any

import pytest

from slicebus.decisions.commands import Remove
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide import catalog
from slicebus.manager.decide.job.slice_history import SliceHistory, collect
from slicebus.manager.state.settings import LeaderSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.api import kueue
from unit.manager.objects import a_job, a_view, a_workload, condition

Manifest = dict[str, Any]
NOW = "2026-01-31T12:00:00Z"
DAY = 24 * 3600.0


def finished(name: str, day: int, **how: Any) -> Manifest:
    """A slice that ended on that day of the month."""
    ended = condition("Finished", reason="WorkloadSliceReplaced") | {
        "lastTransitionTime": f"2026-01-{day:02}T12:00:00Z"
    }
    return a_workload(name, conditions=(ended,), **({"held": False} | how))


CASES: dict[str, tuple[list[Manifest], SliceHistory, list[str]]] = {
    "within limit and time": ([finished("a", 30), finished("b", 29)], SliceHistory(2, 7 * DAY), []),
    "past the limit, the oldest": (
        [finished("a", 30), finished("b", 28), finished("c", 29)],
        SliceHistory(2, 7 * DAY),
        ["b"],
    ),
    "too old": ([finished("a", 30), finished("b", 20)], SliceHistory(9, 7 * DAY), ["b"]),
    "none is kept": ([finished("a", 30), finished("b", 29)], SliceHistory(0, 7 * DAY), ["b", "a"]),
    "what runs and waits is no history": (
        [a_workload("a", admitted=1), a_workload("b", 2, replaces="a")],
        SliceHistory(0, 0),
        [],
    ),
    "not let go yet": ([finished("a", 1, held=True)], SliceHistory(0, 0), []),
    "the newest dispatch is on it": (
        [finished("a", 1, dispatched=4), finished("b", 2, dispatched=3)],
        SliceHistory(0, 0),
        ["b"],
    ),
    "going already": ([finished("a", 1, deleting=True)], SliceHistory(0, 0), []),
}


@pytest.mark.parametrize(("workloads", "history", "expected"), CASES.values(), ids=CASES.keys())
def test_what_is_no_longer_kept(workloads: list[Manifest], history: SliceHistory, expected: list[str]) -> None:
    commands = collect(a_view(a_job(), *workloads), history, datetime.fromisoformat(NOW))
    assert [type(command) for command in commands] == [Remove] * len(expected)
    assert [command.target["metadata"]["name"] for command in commands if isinstance(command, Remove)] == expected


def test_every_job_has_a_history_of_its_own() -> None:
    store = ManagerStore()
    for job in ("x", "y"):
        for day in (10, 20, 30):
            workload = finished(f"{job}-{day}", day)
            workload["metadata"]["labels"][kueue.JOB_UID_LABEL] = f"uid-{job}"
            workload["metadata"]["ownerReferences"][0] |= {"uid": f"uid-{job}", "name": job}
            store.workloads.put(workload)
    store.configure(LeaderSettings(slice_history_limit=2, slice_history_s=365 * DAY))
    commands = catalog.collect(store, now=NOW)
    assert all(isinstance(command, Remove) and command.resource == WORKLOADS for command in commands)
    assert [command.target["metadata"]["name"] for command in commands if isinstance(command, Remove)] == [
        "x-10",
        "y-10",
    ]
