"""How long jobs have run, by the messages about them."""

from typing import Any

from slicebus.journal.entry import Entry
from slicebus.journal.run_times import RunHistory, RunTime, RunTimes
from slicebus.proto.messages import Delete, JobPhase, JobRef, Message, Status, WorkloadSpec
from unit.journal.records import entry, garbage

JOB = JobRef("batch/v1", "Job", "team", "train", "uid-train")


def spec(pods: int, *, queue: Any = "batch", job: JobRef = JOB) -> WorkloadSpec:
    workload = {"metadata": {"name": "w"}, "status": {"admission": {"clusterQueue": queue}}}
    return WorkloadSpec(job=job, spec_version=1, workload=workload, manifest={}, granted={"main": pods})


def status(phase: JobPhase, *, job: JobRef = JOB) -> Status:
    return Status(job=job, workload="w", spec_version=1, phase=phase)


def known(*messages: tuple[float, Message]) -> RunHistory:
    times = RunTimes()
    for number, (at_s, message) in enumerate(messages):
        times.feed(entry(message, at_s=at_s, offset=number))
    return times.history


def found(*messages: tuple[float, Message]) -> list[RunTime]:
    return [*known(*messages).run_times]


def test_from_the_first_order_to_the_end() -> None:
    told = found(
        (0, spec(2)),
        (5, status(JobPhase.RUNNING)),
        (9, spec(6)),
        (20, spec(3)),
        (70, status(JobPhase.SUCCEEDED)),
        (71, status(JobPhase.SUCCEEDED)),
    )
    assert told == [RunTime("batch", 6, 70.0)]


def test_each_job_by_itself() -> None:
    other = JobRef("batch/v1", "Job", "team", "other", "uid-other")
    told = found(
        (0, spec(1)),
        (1, spec(2, queue="gpu", job=other)),
        (4, status(JobPhase.FAILED, job=other)),
        (9, status(JobPhase.SUCCEEDED)),
    )
    assert told == [RunTime("gpu", 2, 3.0), RunTime("batch", 1, 9.0)]


def test_what_was_cut_off_tells_nothing() -> None:
    delete = Delete(job=JOB, spec_version=2, reason="JobDeleted")
    assert found((0, spec(1)), (5, delete), (6, status(JobPhase.SUCCEEDED))) == []


def test_a_job_comes_once() -> None:
    other = JobRef("batch/v1", "Job", "team", "other", "uid-other")
    told = known((0, spec(2)), (4, spec(6)), (9, status(JobPhase.SUCCEEDED)), (11, spec(1, job=other)), (12, spec(2)))
    assert [*told.newcomers] == [spec(2).workload, spec(1, job=other).workload]


def test_what_nobody_can_read_tells_nothing() -> None:
    times = RunTimes()
    times.feed(Entry.from_record(garbage()))
    times.feed(entry(spec(0), at_s=0))
    for queue in (None, 3, {}):
        times.feed(entry(spec(1, queue=queue), at_s=1))
    times.feed(entry(status(JobPhase.SUCCEEDED), at_s=2))
    assert times.history == RunHistory((), ())
