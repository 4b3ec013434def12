"""`slicebus fleet get`: everything that is known of one worker cluster."""

from typing import Any

from slicebus.cli.fleet.details import ClusterDetails, details_of
from slicebus.cli.fleet.details_page import page
from slicebus.slices.workload.workload import FlavorName
from unit.cli.test_fleet import a_cluster
from unit.cli.test_job_rows import named

SPOT = FlavorName("spot")
EVENT: dict[str, Any] = {
    "metadata": {},
    "involvedObject": {"kind": "WorkerCluster", "name": "east"},
    "reason": "Connected",
    "message": "The agent speaks, epoch 7",
    "lastTimestamp": "2026-01-31T12:00:00Z",
}


def of_east(**status: Any) -> ClusterDetails:
    cluster = a_cluster(
        {"accepted": True, "brokerUser": "agent-east", "clusterQueues": ["batch"], "drain": True},
        "Connected",
        epoch=7,
        agentVersion="0.1.0",
        lagSeconds=12,
        outOfSync=1,
        heldDeletes={"id": "x", "jobs": 30},
        capacity={"spot": {"cpu": "16"}},
        used={"spot": {"cpu": "6"}},
        ours={"spot": {"cpu": "4"}},
        lackingNamespaces={"team-z": "NamespaceNotFound"},
        lastHeartbeatTime="2026-01-31T12:00:26Z",
        **status,
    )
    other = EVENT | {"involvedObject": {"kind": "WorkerCluster", "name": "west"}}
    jobs = [named("a", "sweep"), named("a", "wide", cluster="west")]
    return details_of(cluster, jobs=jobs, granted={(SPOT, "cpu"): 5000}, events=[other, EVENT])


def test_the_room_is_what_others_and_our_jobs_leave() -> None:
    [room] = of_east().room
    assert (room.flavor, room.resource, room.capacity, room.others, room.granted, room.left) == (
        "spot", "cpu", "16", "2", "5", "9"
    )  # fmt: skip


def test_a_cluster_without_a_limit() -> None:
    details = details_of(a_cluster({"capacity": "Unlimited"}), jobs=[], granted={(SPOT, "cpu"): 5000})
    [room] = details.room
    assert (room.capacity, room.granted, room.left) == ("", "5", "")
    assert any("unlimited" in line for line in page(details))


def test_only_what_is_about_the_cluster() -> None:
    details = of_east()
    assert [job.name for job in details.jobs] == ["sweep"]
    assert [event.message for event in details.events] == ["The agent speaks, epoch 7"]


def test_the_page() -> None:
    text = "\n".join(page(of_east()))
    for told in (
        "Status:         connected, drained, 30 deletes held, 1 out of sync, 12 s behind",
        "Deletes held:   30: slicebus fleet release east",
        "Broker user:    agent-east",
        "Takes:          only jobs of ClusterQueues batch",
        "  team-z   NamespaceNotFound",
        "  2026-01-31T12:00:00Z   Connected   The agent speaks, epoch 7",
        "  a           sweep   Job    Running   2         2",
    ):
        assert told in text


def test_a_cluster_that_nobody_has_heard_of() -> None:
    text = "\n".join(page(details_of(a_cluster({}), jobs=[], granted={})))
    assert "Status:        silent, not accepted" in text
    assert "Seen:          never" in text
    assert "Cluster UID:   none reported yet" in text
