"""What a LocalQueue has used over time, as its status has it."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from slicebus.slices.quota.consumption import Consumption, ResourceWeight, UsageRule, to_status

AT = datetime.fromisoformat("2026-06-01T00:00:00Z")
RULE = UsageRule(half_life_s=100.0)


@pytest.mark.parametrize(
    ("half_life_s", "after_s", "expected"),
    [(100, 0, 8.0), (100, 100, 5.0), (100, 200, 3.5), (100, 1e9, 2.0), (0, 1, 2.0), (0, 0, 2.0), (100, -50, 8.0)],
)
def test_it_goes_to_what_is_used_by_the_half_life(half_life_s: float, after_s: float, expected: float) -> None:
    account = Consumption({"cpu": 8.0}, AT, {"cpu": 2.0})
    found = account.until(AT + timedelta(seconds=after_s), UsageRule(half_life_s=half_life_s))
    assert found == pytest.approx({"cpu": expected})


def test_it_does_not_matter_when_it_is_written() -> None:
    account, middle, end = Consumption({}, AT, {"cpu": 4.0}), AT + timedelta(seconds=30), AT + timedelta(seconds=70)
    written = Consumption(account.until(middle, RULE), middle, {"cpu": 4.0})
    assert written.until(end, RULE) == pytest.approx(account.until(end, RULE))


def status(consumed: Any, last: str = "2026-06-01T00:00:00Z") -> dict[str, Any]:
    usage = [
        {"name": flavor, "resources": [{"name": "cpu", "total": "1500m"}, {"name": "memory", "total": "1Gi"}]}
        for flavor in ("spot", "reserved")
    ]
    said = {"consumedResources": consumed, "lastUpdate": last}
    return {"flavorsUsage": usage, "fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": said}}


def test_it_stands_in_the_fields_of_kueue() -> None:
    assert to_status({"cpu": 2.0004, "gpu": 0.25}, "2026-06-01T00:00:00Z") == {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": {"cpu": "2", "gpu": "250m"},
            "lastUpdate": "2026-06-01T00:00:00Z",
        },
    }
    found = Consumption.from_status(status({"cpu": "250m", "gpu": 3}))
    assert found == Consumption({"cpu": 0.25, "gpu": 3.0}, AT, {"cpu": 3.0, "memory": float(2**31)})


@pytest.mark.parametrize(
    "said",
    [{}, {"fairSharing": None}, status({"cpu": "much"}), status({}, "yesterday"), status({}, "2026-06-01"), status([])],
)
def test_a_status_that_says_nothing_of_it(said: dict[str, Any]) -> None:
    found = Consumption.from_status(said)
    assert found is None or found.consumed == {}


def test_resources_count_by_their_weights() -> None:
    rule = UsageRule(weights=(ResourceWeight("gpu", 10.0), ResourceWeight("memory", 0.0)))
    assert rule.weighted({"cpu": 2.0, "gpu": 1.0, "memory": 1e9}) == 12.0
