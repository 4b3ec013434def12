"""`slicebus fleet get`: everything that is known of one worker cluster."""

from typing import Any

import pytest

from slicebus.cli.cluster.reading import ListedResource, Reading
from slicebus.cli.fleet.details import ClusterDetails, details_of
from slicebus.cli.fleet.details_page import page
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.state.store import ManagerStore
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


def test_who_sees_some_workloads_alone_is_told_no_sum_of_them() -> None:
    """Of what one namespace is granted, what is left to it on the cluster cannot be said."""
    cluster = a_cluster({}, "Connected", capacity={"spot": {"cpu": "16"}}, used={"spot": {"cpu": "6"}})
    details = details_of(cluster, jobs=[], granted=None)
    [room] = details.room
    assert (room.capacity, room.granted, room.left, room.granted_share) == ("16", None, None, None)
    assert any(line.split() == ["spot", "cpu", "16", "6", "?", "?"] for line in page(details))


@pytest.mark.parametrize(
    ("parts", "known"),
    [([None], True), (["team"], False), ([], False)],
    ids=["all workloads", "those of a namespace", "none"],
)
def test_the_sum_is_known_to_who_sees_all_workloads(parts: list[str | None], known: bool) -> None:
    listed = tuple(ListedResource(WORKLOADS, namespace, "1") for namespace in parts)
    reading = Reading(store=ManagerStore(), parts=listed, hidden=())
    assert (reading.granted_on("east") is not None) is known


def test_events_that_cannot_be_read_are_said() -> None:
    details = details_of(a_cluster({}), jobs=[], granted={}, events_unread="you may not see them")
    assert "Events: you may not see them" in list(page(details))


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
