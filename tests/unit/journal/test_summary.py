"""A line for every message type."""

import pytest

from slicebus.journal.entry import Entry
from slicebus.journal.summary import summary
from slicebus.proto.messages import (
    MESSAGES,
    Applied,
    Delete,
    Heartbeat,
    Hello,
    Inventory,
    JobPhase,
    Message,
    Pending,
    PodSetStatus,
    Refused,
    Relabel,
    Resync,
    ScaleRequest,
    Status,
    Suspend,
    Terms,
    WorkloadSpec,
    counts_text,
)
from unit.journal.records import JOB, entry, garbage

LINES: list[tuple[Message, str]] = [
    (
        Hello(agent_version="0.1.0", kubernetes_version="v1.34.0", schema_version="1.0"),
        "agent 0.1.0, Kubernetes v1.34.0",
    ),
    (Heartbeat(jobs=3, out_of_sync=1), "3 jobs, 1 out of sync"),
    (
        ScaleRequest(
            job=JOB,
            workload="w1",
            worker_uid="u",
            worker_generation=2,
            granted={"main": 1},
            wanted={"main": 5},
            why="parallelism changed",
        ),
        "main=1 -> main=5 (parallelism changed)",
    ),
    (
        Status(
            job=JOB,
            workload="w1",
            spec_version=2,
            phase=JobPhase.RUNNING,
            pods={"head": PodSetStatus(ready=1, total=1), "small": PodSetStatus(ready=2, gated=3, total=5)},
        ),
        "Running, ready head=1 small=2, gated 3, version 2",
    ),
    (Status(job=JOB, workload="", spec_version=0, phase=JobPhase.GONE), "Gone, its end is unknown"),
    (Status(job=JOB, workload="", spec_version=0, phase=JobPhase.GONE, seen=True), "Gone, seen to go"),
    (Applied(job=JOB, workload="w1", spec_version=2), "w1, version 2"),
    (Applied(job=JOB, workload="", spec_version=0), "nothing, version 0"),
    (Applied(job=JOB, workload="", spec_version=3, deleted=True), "deleted, version 3"),
    (
        Refused(job=JOB, workload="w1", spec_version=2, reason="JobExists", message="it is there"),
        "JobExists: it is there",
    ),
    (Inventory(round=1, page=1, last=True, items=[]), "page 1, 0 jobs"),
    (
        WorkloadSpec(job=JOB, spec_version=2, workload={"metadata": {"name": "w1"}}, manifest={}, granted={"main": 1}),
        "w1, granted main=1, version 2",
    ),
    (WorkloadSpec(job=JOB, spec_version=2, workload={}, manifest={}, granted={}), ", granted nothing, version 2"),
    (
        Relabel(job=JOB, spec_version=3, from_workload="w1", to_workload="w2", granted={"main": 5}),
        "w1 -> w2, granted main=5, version 3",
    ),
    (Suspend(job=JOB, spec_version=4, workload="w1", reason="Preempted"), "Preempted, version 4"),
    (Delete(job=JOB, spec_version=5, reason="JobDeleted"), "JobDeleted, version 5"),
    (
        Pending(
            job=JOB,
            workload="w2",
            worker_uid="u",
            worker_generation=2,
            wanted={"main": 5},
            reason="Pending",
            message="no quota",
            since="2026-01-31T12:00:00Z",
        ),
        "main=5 waits: no quota",
    ),
    (Resync(reason="reconnected"), "reconnected"),
    (Terms(version="a1"), "version a1, 0 flavors"),
]


@pytest.mark.parametrize(("message", "expected"), LINES, ids=[f"{message.type}-{text}" for message, text in LINES])
def test_each_message_has_its_line(message: Message, expected: str) -> None:
    assert summary(entry(message)) == expected


def test_every_message_type_has_a_line() -> None:
    assert {message.type for message, _ in LINES} == MESSAGES.keys()


def test_an_unreadable_message_says_why() -> None:
    assert summary(Entry.from_record(garbage())).startswith("malformed: ")


def test_empty_counts_are_shown_as_nothing() -> None:
    assert counts_text({}) == "nothing"
