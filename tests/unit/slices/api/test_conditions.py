"""Conditions: what is there already, what is written, and since when."""

from typing import Any

import pytest

from slicebus.slices.api.conditions import Finding, has_finding, with_findings

BEFORE, NOW = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
WAITS = Finding("QuotaReserved", False, "Pending", "no room")
LONG = 32_768


def an_object(*conditions: dict[str, Any], generation: int | None = 4) -> dict[str, Any]:
    metadata = {} if generation is None else {"generation": generation}
    return {"metadata": metadata, "status": {"conditions": list(conditions)}}


def a_condition(type: str = "QuotaReserved", status: str = "False", **fields: Any) -> dict[str, Any]:
    return {
        "type": type,
        "status": status,
        "reason": "Pending",
        "message": "no room",
        "observedGeneration": 1,
        "lastTransitionTime": BEFORE,
    } | fields


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (an_object(a_condition()), True),
        (an_object(a_condition("Admitted"), a_condition()), True),
        (an_object(), False),
        ({"metadata": {}}, False),
        ({"metadata": {}, "status": {"conditions": None}}, False),
        (an_object(a_condition(status="True")), False),
        (an_object(a_condition(status="Unknown")), True),
        (an_object(a_condition(reason="Other")), False),
        (an_object(a_condition(message="other")), False),
        (an_object(a_condition(type="Admitted")), False),
        (an_object({"type": "QuotaReserved", "status": "False"}), False),
    ],
    ids=[
        "the same",
        "among others",
        "no conditions",
        "no status",
        "null",
        "other status",
        "unknown is not true",
        "other reason",
        "other message",
        "other type",
        "nothing said",
    ],
)
def test_a_finding_is_there_when_type_status_reason_and_message_agree(manifest: dict[str, Any], expected: bool) -> None:
    assert has_finding(manifest, WAITS) is expected


def test_a_new_condition_transitions_now_and_names_the_generation() -> None:
    assert with_findings(an_object(), WAITS, now=NOW) == [
        {
            "type": "QuotaReserved",
            "status": "False",
            "reason": "Pending",
            "message": "no room",
            "observedGeneration": 4,
            "lastTransitionTime": NOW,
        }
    ]


def test_an_object_without_a_generation_is_at_its_first() -> None:
    [condition] = with_findings({"metadata": {}}, WAITS, now=NOW)
    assert condition["observedGeneration"] == 1


@pytest.mark.parametrize(
    ("old_status", "since"), [("False", BEFORE), ("True", NOW), ("Unknown", NOW)], ids=["stays", "changes", "settles"]
)
def test_the_transition_time_moves_only_with_the_status(old_status: str, since: str) -> None:
    [condition] = with_findings(an_object(a_condition(status=old_status, message="then")), WAITS, now=NOW)
    assert (condition["lastTransitionTime"], condition["message"]) == (since, "no room")


def test_other_conditions_stay_as_and_where_they_are() -> None:
    first, last = a_condition("A", extra="kept"), a_condition("Z")
    admitted = Finding("Admitted", True, "Admitted", "The workload is admitted")
    conditions = with_findings(an_object(first, a_condition(), last), WAITS, admitted, now=NOW)
    assert [condition["type"] for condition in conditions] == ["A", "QuotaReserved", "Z", "Admitted"]
    assert (conditions[0], conditions[2]) == (first, last)


def test_the_manifest_is_not_changed() -> None:
    manifest = an_object(a_condition(status="True"))
    with_findings(manifest, WAITS, now=NOW)
    assert manifest == an_object(a_condition(status="True"))


@pytest.mark.parametrize("length", [LONG - 1, LONG, LONG + 1, 2 * LONG])
def test_what_was_written_is_found_again_however_long_its_message(length: int) -> None:
    finding = Finding("QuotaReserved", False, "Pending", "m" * length)
    written = with_findings(an_object(), finding, now=NOW)
    assert len(written[0]["message"]) == min(length, LONG)
    assert has_finding(an_object(*written), finding)
