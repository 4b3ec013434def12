"""Where pods did not get ready: how long a job keeps away."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from slicebus.slices.api import api_names
from slicebus.slices.workload.avoided_clusters import (
    Avoided,
    Clusters,
    avoid,
    avoided_now,
    end_expired,
    next_expiry_s,
    read,
    to_annotation,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def a_workload(text: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {api_names.AVOIDED_CLUSTERS_ANNOTATION: text} if text is not None else {}}}


def test_the_time_doubles_up_to_an_hour() -> None:
    avoided: Clusters = {}
    minutes = []
    for _ in range(9):
        avoided = avoid(avoided, "east", now=NOW)
        until = avoided["east"].until
        assert until is not None
        minutes.append((until - NOW) / timedelta(minutes=1))
    assert minutes == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_it_is_kept_in_an_annotation() -> None:
    avoided = avoid(avoid({"west": Avoided(2)}, "east", now=NOW), "north", now=NOW)
    workload = a_workload(to_annotation(avoided))
    assert read(workload) == avoided
    assert avoided_now(workload) == {"east", "north"}
    assert to_annotation({}) is None


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", '{"east": {"until": "soon"}}', '{"east": {"until": "2026-01-01T00:00:00"}}']
)
def test_what_cannot_be_read_keeps_nobody_away(text: str | None) -> None:
    assert avoided_now(a_workload(text)) == frozenset()


def test_after_its_time_a_cluster_is_tried_again_and_its_count_stays() -> None:
    avoided = avoid(avoid({}, "east", now=NOW), "west", now=NOW + timedelta(seconds=30))
    assert next_expiry_s(avoided, now=NOW) == 60
    assert end_expired(avoided, now=NOW + timedelta(seconds=59)) == avoided
    left = end_expired(avoided, now=NOW + timedelta(seconds=60))
    assert left == {"east": Avoided(1), "west": avoided["west"]}
    assert next_expiry_s(left, now=NOW + timedelta(seconds=60)) == 30
    assert next_expiry_s({"east": Avoided(1)}, now=NOW) is None
    assert avoid(left, "east", now=NOW)["east"].times == 2
