"""An admission past what a cluster has is noticed; one that takes what its chain has just given back is none."""

from contextlib import nullcontext
from typing import Any

import pytest

from simulation.loop import run
from simulation.room_rules import RoomRules
from simulation.violations import Violation
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.api import kueue
from slicebus.slices.workload.observed import Observed, ObservedPods
from slicebus.slices.workload.workload import Slice, SliceKey

Manifest = dict[str, Any]
FIVE_CORES, FOUR_CORES = (
    {"capacity": {"default": {"cpu": cpu}}, "used": {"default": {}}, "ours": {"default": {}}} for cpu in "54"
)

EIGHT_CORES = {
    "capacity": {"default": {"cpu": "8"}},
    "used": {"default": {"cpu": "5"}},
    "ours": {"default": {"cpu": "2"}},
}
"""One core is used by others, and two by what pods request beyond their admission."""


def slice_of(job: str, name: str, cpu: int, *, admitted: bool = True) -> Slice:
    pod = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    assignment = {"name": "main", "count": cpu, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": str(cpu)}}
    status: dict[str, Any] = {"clusterName": "east"}
    if admitted:
        status["admission"] = {"clusterQueue": "cq", "podSetAssignments": [assignment]}
        status["conditions"] = [{"type": "QuotaReserved", "status": "True"}]
    return Slice.from_manifest(
        {
            "metadata": {"name": name, "namespace": "team-a", "uid": name, "labels": {kueue.JOB_UID_LABEL: job}},
            "spec": {"podSets": [{"name": "main", "count": cpu, "template": {"spec": pod}}]},
            "status": status,
        }
    )


FIRST, SHRUNK = slice_of("a", "a1", 5), slice_of("a", "a1", 2)
WAITS, GROWN = slice_of("a", "a2", 5, admitted=False), slice_of("a", "a2", 5)
TOO_MUCH, OTHER = slice_of("a", "a2", 6), slice_of("b", "b1", 3)


@pytest.mark.parametrize(
    ("changes", "breaks"),
    [
        ((slice_of("a", "a1", 4),), False),
        ((FIRST,), True),
        ((OTHER, SHRUNK), True),
        ((OTHER, slice_of("a", "a1", 1)), False),
    ],
    ids=["all of it", "more than there is", "more than another leaves", "what another leaves"],
)
def test_a_new_job(changes: tuple[Slice, ...], breaks: bool) -> None:
    with pytest.raises(Violation, match=r"^room: ") if breaks else nullcontext():
        played(changes)


@pytest.mark.parametrize(
    ("slice", "breaks"), [(GROWN, False), (TOO_MUCH, True), (OTHER, True)], ids=["had it", "more", "another job"]
)
def test_a_job_that_had_more_than_there_is_before_it_shrank(slice: Slice, breaks: bool) -> None:
    with pytest.raises(Violation, match=r"^room: ") if breaks else nullcontext():
        played((SHRUNK, slice), before=(FIRST, WAITS))


@pytest.mark.parametrize(
    ("slice", "breaks"),
    [(slice_of("a", "a2", 7), False), (slice_of("a", "a2", 8), True), (slice_of("b", "b1", 4), True)],
    ids=["all of it", "more than there is", "another job"],
)
def test_a_job_whose_pods_request_more_than_it_was_admitted_with(slice: Slice, breaks: bool) -> None:
    """Two pods of two cores each: their cluster reports half of that as used by others."""
    each = Observed(cluster="east", pod_sets={"main": ObservedPods(requests={"cpu": 2000})})
    before = (slice_of("a", "a1", 2).with_observed(each), slice_of("a", "a2", 2, admitted=False))
    with pytest.raises(Violation, match=r"^room: ") if breaks else nullcontext():
        played((slice,), before=before, reported=EIGHT_CORES, then=EIGHT_CORES)


def test_a_cluster_that_has_not_reported_has_no_room() -> None:
    with pytest.raises(Violation, match=r"^room: "):
        played((), before=(OTHER,), reported={})


def played(
    changes: tuple[Slice, ...],
    before: tuple[Slice, ...] = (),
    *,
    reported: Manifest = FIVE_CORES,
    then: Manifest = FOUR_CORES,
) -> None:
    """The slices change one after the other; `before` when the cluster has reported that much."""

    async def play() -> None:
        slices: dict[SliceKey, Slice] = {}
        rules = RoomRules(slices)

        def report(status: dict[str, Any]) -> None:
            key = (WORKERCLUSTERS.group, WORKERCLUSTERS.plural, "", "east")
            rules.see_cluster(HistoryEntry(1, "MODIFIED", key, {"metadata": {"name": "east"}, "status": status}, None))

        def see(slice: Slice) -> None:
            old, slices[slice.key] = slices.get(slice.key), slice
            rules.see_slice(slice, old)

        report(reported)
        for slice in before:
            see(slice)
        rules.settle()
        report(then)
        rules.settle()
        for slice in changes:
            see(slice)

    run(play())
