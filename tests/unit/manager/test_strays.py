"""Strays: jobs on a worker that should not be there."""

from typing import Any

import msgspec
import pytest

from slicebus.decisions.commands import Publish
from slicebus.manager.decide.cluster.strays import Whereabouts, delete, in_turn, is_stray, whereabouts
from slicebus.manager.state.outbox import MOST_BELIEVED
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import MOST_VERSION, ClusterName, Delete, JobRef
from unit.manager.objects import REF, a_job, a_view

EAST, WEST = ClusterName("east"), ClusterName("west")


def placed_on(cluster: ClusterName | None, **changes: Any) -> JobView:
    return msgspec.structs.replace(a_view(a_job()), cluster=cluster, **changes)


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [(EAST, Whereabouts.HERE), (WEST, Whereabouts.ELSEWHERE), (None, Whereabouts.UNKNOWN)],
)
def test_a_job_is_elsewhere_only_where_the_manager_runs_it_there(
    cluster: ClusterName | None, expected: Whereabouts
) -> None:
    assert whereabouts(placed_on(cluster), EAST) is expected


LISTED: dict[str, tuple[JobView, bool, bool]] = {
    "on another cluster": (placed_on(WEST), False, True),
    "placed nowhere": (placed_on(None), False, True),
    "where it belongs": (placed_on(EAST), False, False),
    "reported since": (placed_on(WEST), True, False),
    "recalled anyway": (placed_on(WEST, left_copies={EAST: 4}), False, False),
}


@pytest.mark.parametrize(("view", "reported_since", "expected"), LISTED.values(), ids=LISTED.keys())
def test_a_listed_job_is_a_stray(view: JobView, reported_since: bool, expected: bool) -> None:
    assert is_stray(view, EAST, reported_since=reported_since) is expected


A, B, C, D, E = (JobRef("batch/v1", "Job", "team", name, f"uid-of-{name}") for name in "abcde")


def test_those_that_wait_come_first_and_those_that_were_settled_last() -> None:
    assert in_turn([A, B, C, D], waiting=[D, E, B], settled=[B, A]) == [D, C, B, A]


STORED: dict[str, tuple[ClusterName | None, str | None, bool]] = {
    "on another cluster": (WEST, None, True),
    "known to nobody": (None, None, True),
    "its name is another job's": (None, "another", True),
    "the cache lacked it": (None, REF.uid, False),
    "back where it belongs": (EAST, None, False),
}


@pytest.mark.parametrize(("cluster", "stored_uid", "deleted"), STORED.values(), ids=STORED.keys())
def test_a_stray_is_deleted_above_its_version(
    cluster: ClusterName | None, stored_uid: str | None, deleted: bool
) -> None:
    order = Publish(cluster=EAST, message=Delete(job=REF, spec_version=6, reason="UnknownJob"))
    commands = delete(placed_on(cluster), EAST, version=5, stored_uid=stored_uid)
    assert commands == ([order] if deleted else [])


def test_the_delete_of_a_stray_has_a_version_that_its_agent_reads() -> None:
    [order] = delete(placed_on(None), EAST, version=MOST_VERSION, stored_uid=None)
    assert isinstance(order, Publish)
    assert isinstance(order.message, Delete)
    assert order.message.spec_version == MOST_BELIEVED + 1
