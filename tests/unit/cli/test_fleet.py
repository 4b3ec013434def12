"""`slicebus fleet list`: what a line says of a cluster."""

from datetime import UTC, datetime
from typing import Any

import pytest

from slicebus.cli.fleet.command import row

NOW = datetime(2026, 1, 31, 12, 0, 30, tzinfo=UTC)
STANDING: dict[str, tuple[dict[str, bool], tuple[str, ...], str]] = {
    "in service": ({"accepted": True}, ("Connected",), "connected"),
    "not accepted": ({}, (), "silent, not accepted"),
    "cordoned": ({"accepted": True, "cordoned": True}, ("Connected",), "connected, cordoned"),
    "drained, which is more": ({"accepted": True, "cordoned": True, "drain": True}, (), "silent, drained"),
    "given up": ({"accepted": True}, ("GivenUp",), "silent, given up"),
}


def a_cluster(spec: dict[str, Any], *true: str, **status: Any) -> dict[str, Any]:
    conditions = [{"type": name, "status": "True"} for name in true]
    return {"metadata": {"name": "east"}, "spec": spec, "status": status | {"conditions": conditions}}


@pytest.mark.parametrize(("spec", "true", "expected"), STANDING.values(), ids=STANDING.keys())
def test_the_status_of_a_cluster(spec: dict[str, Any], true: tuple[str, ...], expected: str) -> None:
    assert row(a_cluster(spec, *true), NOW)[1] == expected


def test_a_cluster_is_unknown_while_no_manager_works() -> None:
    """Nobody would have written that it has fallen silent."""
    cluster = a_cluster({"accepted": True, "cordoned": True}, "Connected", lastHeartbeatTime="2026-01-31T12:00:26Z")
    assert row(cluster, NOW, is_known=False)[1:4] == ["unknown, cordoned", "0", "4s ago"]


def test_each_flavor_has_a_line() -> None:
    cluster = a_cluster(
        {"accepted": True},
        "Connected",
        jobs=12,
        room="default 12/40 cpu; gpu 3/8 cpu",
        outOfSync=1,
        lagSeconds=12,
        heldDeletes={"id": "x", "jobs": 30},
        heldDeletesByShard={"1": {"id": "y", "jobs": 10}, "2": None},
        lastHeartbeatTime="2026-01-31T12:00:26Z",
    )
    assert row(cluster, NOW)[1:] == [
        "connected, 40 deletes held, 1 out of sync, 12 s behind",
        "12",
        "4s ago",
        "default 12/40 cpu\ngpu 3/8 cpu",
    ]


def test_a_cluster_without_a_heartbeat() -> None:
    assert row(a_cluster({}), NOW)[2:] == ["0", "never", ""]
