"""What a report carries of a job's status."""

from typing import Any

import msgspec
import pytest

from slicebus.agent.state.status_bounds import fitting

INDEXES = ",".join(map(str, range(0, 200_000, 2)))
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "a usual one": ({"active": 3, "ready": 2}, {"active": 3, "ready": 2}),
    "one large field": ({"active": 3, "completedIndexes": INDEXES}, {"active": 3}),
    "two, of which one fits": (
        {"active": 3, "failedIndexes": "1,2", "completedIndexes": INDEXES, "uncountedTerminatedPods": {"failed": []}},
        {"active": 3, "failedIndexes": "1,2", "uncountedTerminatedPods": {"failed": []}},
    ),
}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


def test_what_is_nested_too_deep_for_a_message_is_left_out() -> None:
    """The API server stores 10,000 levels, and the end of the job shall be told all the same."""
    assert fitting({"succeeded": 1, "details": nested(4000), "shallow": nested(20)}) == {
        "succeeded": 1,
        "shallow": nested(20),
    }


@pytest.mark.parametrize(("status", "expected"), CASES.values(), ids=CASES.keys())
def test_the_largest_fields_are_left_out(status: dict[str, Any], expected: dict[str, Any]) -> None:
    found = fitting(status)
    assert found == expected
    assert len(msgspec.json.encode(found)) <= 32 * 1024
    assert fitting(found) == found
