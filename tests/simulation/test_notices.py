"""A notice is kept, whatever takes the pods; but a user who sets the smaller size waits for none."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from simulation.notices import check_kept
from simulation.violations import Violation
from slicebus.agent.state import annotations
from slicebus.agent.state.reclaim import PendingReclaim, Suspension
from slicebus.proto.messages import Counts
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.api import api_names

Manifest = dict[str, Any]
NOTICE = PendingReclaim(
    id="word", before={"main": 4}, to={"main": 2}, deadline="2026-01-01T00:00:14Z", version=3, word="word"
)
EVICTION = PendingReclaim(
    id="2", before={"main": 2}, to={"main": 0}, deadline=NOTICE.deadline, version=3, suspends=Suspension(workload="w1")
)


def a_copy(parallelism: int, *, baseline: int, notice: PendingReclaim = NOTICE, suspend: bool = False) -> Manifest:
    noted = {
        api_names.BASELINE_ANNOTATION: annotations.encode_counts({"main": baseline}),
        api_names.RECLAIM_ANNOTATION: notice.to_annotation(),
        api_names.SPEC_VERSION_ANNOTATION: "3",
    }
    spec = {"parallelism": parallelism, "suspend": suspend, "template": {"spec": {"containers": []}}}
    return {"kind": "Job", "metadata": {"name": "job", "uid": "u1", "annotations": noted}, "spec": spec}


def changed(old: Manifest, new: Manifest, *, edited: Collection[Counts] = (), words: Collection[str] = ()) -> None:
    change = HistoryEntry(2, ("batch", "jobs", "team-a", "job"), "MODIFIED", new, old)
    now = datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
    check_kept(change, old, now=now, running=lambda: {"main": 4}, edited=edited, words=words)


def test_a_user_who_sets_the_size_of_a_notice_waits_for_none() -> None:
    changed(a_copy(3, baseline=3), a_copy(2, baseline=2), edited=[{"main": 3}, {"main": 2}])


@pytest.mark.parametrize(
    ("edited", "words", "baseline"),
    [([], [], 3), ([{"main": 3}], [], 3), ([{"main": 2}], ["word"], 3), ([{"main": 2}], [], 2)],
    ids=["nobody has set a size", "another size", "the manager's word stands", "it is no news"],
)
def test_nobody_else_ends_a_notice_early(edited: list[Counts], words: list[str], baseline: int) -> None:
    with pytest.raises(Violation, match="notice: job loses"):
        changed(a_copy(3, baseline=baseline), a_copy(2, baseline=2), edited=edited, words=words)


@pytest.mark.parametrize("size", [3, 2])
def test_each_of_several_notices_is_kept(size: int) -> None:
    first = structs.replace(NOTICE, id="first", to={"main": 3}, deadline="2026-01-01T00:00:12Z")
    both = structs.replace(NOTICE, before={"main": 3}, earlier=(first,))
    with pytest.raises(Violation, match=rf"notice: job loses .* to \{{'main': {size}\}} before"):
        changed(a_copy(4, baseline=4, notice=both), a_copy(size, baseline=size, notice=both))


def test_no_size_of_a_user_ends_the_notice_of_an_eviction_early() -> None:
    old = a_copy(2, baseline=3, notice=EVICTION)
    with pytest.raises(Violation, match="notice: job loses"):
        changed(old, a_copy(2, baseline=3, notice=EVICTION, suspend=True), edited=[{"main": 2}])
