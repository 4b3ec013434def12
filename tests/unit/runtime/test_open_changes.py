"""Which change of a job goes on, as its messages say it, and what is logged meanwhile."""

import pytest
import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import Applied, Delete, Message, Relabel, Resync, Suspend
from slicebus.runtime.open_changes import OpenChanges
from unit.journal.records import BEGAN, EAST, EAST_UID, JOB
from unit.journal.test_traces import pending, request, spec, status

FIRST, SECOND = "chain-1", "chain-2"


def noted(*messages: tuple[str, Message]) -> OpenChanges:
    changes, issuer = OpenChanges(), Issuer(epoch=1, user="east", now=lambda: BEGAN, random=bytes)
    for chain, message in messages:
        changes.note(issuer.envelope(message, EAST, EAST_UID, correlation=chain), message)
    return changes


def logged(changes: OpenChanges, job: str = JOB.key) -> str:
    """The chain of a line about a job; empty for none."""
    with capture_logs(processors=[merge_contextvars]) as lines:
        with changes.logged(job):
            structlog.get_logger().info("something")
        structlog.get_logger().info("something else")
    assert "correlation" not in lines[1]
    return str(lines[0].get("correlation", ""))


def relabel() -> Relabel:
    return Relabel(job=JOB, spec_version=2, from_workload="job-sweep-1", to_workload="job-sweep-2", granted={"main": 5})


RESIZE: list[tuple[str, Message]] = [(FIRST, request(1, 5)), (FIRST, spec(5, version=2)), (FIRST, relabel())]
CASES: dict[str, tuple[list[tuple[str, Message]], str]] = {
    "nothing": ([], ""),
    "a request": ([(FIRST, request(1, 5))], FIRST),
    "a request that waits": ([(FIRST, request(1, 5)), (FIRST, pending(5))], FIRST),
    "an order": (RESIZE, FIRST),
    "an order whose pods are not ready": ([*RESIZE, (SECOND, status(3, version=2))], FIRST),
    "a status of the version before": ([*RESIZE, (SECOND, status(5, version=1))], FIRST),
    "a status before the order": ([(FIRST, request(5, 3)), (SECOND, status(5, version=1))], FIRST),
    "the outcome": ([*RESIZE, (SECOND, status(5, version=2))], ""),
    "what an order begins": ([(SECOND, spec(1, version=1))], SECOND),
    "the next change": ([*RESIZE, (SECOND, request(5, 6))], SECOND),
    "an order that was applied": ([*RESIZE, (FIRST, Applied(job=JOB, workload="w", spec_version=2))], FIRST),
    "a delete": ([(FIRST, Delete(job=JOB, spec_version=3, reason="JobDeleted"))], FIRST),
    "a delete that was done": (
        [
            (FIRST, Delete(job=JOB, spec_version=3, reason="JobDeleted")),
            (FIRST, Applied(job=JOB, workload="", spec_version=3, deleted=True)),
        ],
        "",
    ),
    "a suspend that was done": (
        [
            (FIRST, Suspend(job=JOB, spec_version=3, workload="w", reason="Evicted")),
            (FIRST, Applied(job=JOB, workload="", spec_version=3)),
        ],
        "",
    ),
    "a message about no job": ([(FIRST, Resync())], ""),
}


@pytest.mark.parametrize(("messages", "expected"), CASES.values(), ids=CASES)
def test_a_line_has_the_chain_of_the_change_that_goes_on(messages: list[tuple[str, Message]], expected: str) -> None:
    assert logged(noted(*messages)) == expected


def test_a_line_about_another_job_has_none() -> None:
    assert logged(noted(*RESIZE), "Job/team/another") == ""
