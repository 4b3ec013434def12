"""`slicebus fleet list`: what a line says of a cluster."""

import json
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
import yaml

from slicebus.ambient.clock import ambient
from slicebus.cli.cluster.listing import Listing
from slicebus.cli.cluster.options import Output, OutputFormat
from slicebus.cli.fleet.rows import COLUMNS, ClusterRow

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
    assert ClusterRow.of(a_cluster(spec, *true)).status == expected


def test_a_cluster_is_unknown_while_no_manager_works() -> None:
    """Nobody would have written that it has fallen silent."""
    row = ClusterRow.of(a_cluster({"accepted": True, "cordoned": True}, "Connected"), is_known=False)
    assert row.status == "unknown, cordoned"


EAST = a_cluster(
    {"accepted": True},
    "Connected",
    jobs=12,
    room="default 12/40 cpu; gpu 3/8 cpu",
    outOfSync=1,
    lagSeconds=12,
    heldDeletes={"id": "x", "jobs": 30},
    heldDeletesByShard={"1": {"id": "y", "jobs": 10}, "2": None},
    lastHeartbeatTime="2026-01-31T12:00:26Z",
    agentVersion="0.1.0",
    kubernetesVersion="v1.34.1",
)
NEW = a_cluster({}) | {"metadata": {"name": "west"}}


def printed(capsys: pytest.CaptureFixture[str], **format: Any) -> str:
    """What `fleet list` prints of two clusters, at a fixed time."""
    with ambient(clock=lambda: datetime(2026, 1, 31, 12, 0, 30, tzinfo=UTC), random=Random()):
        Listing(COLUMNS, OutputFormat(**format)).show([ClusterRow.of(EAST), ClusterRow.of(NEW)])
    return capsys.readouterr().out


def test_a_cluster_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys).splitlines() == [
        "CLUSTER   STATUS                                                   JOBS   SEEN     ROOM",
        "east      connected, 40 deletes held, 1 out of sync, 12 s behind   12     4s ago   "
        "default 12/40 cpu; gpu 3/8 cpu",
        "west      silent, not accepted                                     0      never",
    ]


def test_wide_has_more_columns_and_no_titles_where_nobody_wants_them(capsys: pytest.CaptureFixture[str]) -> None:
    [east, west] = printed(capsys, output=Output.WIDE, no_headers=True).splitlines()
    assert east.split()[-8:] == ["0.1.0", "v1.34.1", "default", "12/40", "cpu;", "gpu", "3/8", "cpu"]
    assert west.split() == ["west", "silent,", "not", "accepted", "0", "never"]


def test_names_are_those_of_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    names = printed(capsys, output=Output.NAME).split()
    assert names == ["workercluster.slicebus.dev/east", "workercluster.slicebus.dev/west"]


@pytest.mark.parametrize(("output", "read"), [(Output.JSON, json.loads), (Output.YAML, yaml.safe_load)])
def test_programs_get_every_field(output: Output, read: Any, capsys: pytest.CaptureFixture[str]) -> None:
    items = read(printed(capsys, output=output))["items"]
    assert items[0]["heard"] == "2026-01-31T12:00:26Z"
    assert (items[1]["heard"], items[1]["jobs"]) == (None, 0)
