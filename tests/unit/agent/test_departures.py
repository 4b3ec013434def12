"""The last known state of a job that has gone from the worker without an order."""

from typing import Any

import msgspec
import pytest

from slicebus.agent.state.departures import Departure
from slicebus.agent.state.views import WorkerJobReading
from slicebus.proto.messages import JobPhase
from unit.agent.objects import a_job

Manifest = dict[str, Any]

# Last known before, last state where the watch has brought it: seen, end.
DEPARTURES: dict[str, tuple[Manifest, Manifest | None, bool, JobPhase | None]] = {
    "it ran, and was seen to go": (a_job(), a_job(), True, None),
    "it ran, and was going when it was seen last": (a_job(), a_job(deleting=True), True, None),
    "it ran, and was missing from a list": (a_job(), None, False, None),
    "it had ended, and was seen to go": (a_job(over="Complete"), a_job(over="Complete"), True, JobPhase.SUCCEEDED),
    "it had ended, and was missing from a list": (a_job(over="Failed"), None, False, JobPhase.FAILED),
    "it had ended in its last state": (a_job(), a_job(over="Failed"), True, JobPhase.FAILED),
    "it was suspended, and was missing from a list": (a_job(suspended=True), None, False, None),
}


@pytest.mark.parametrize(("before", "final", "seen", "end"), DEPARTURES.values(), ids=DEPARTURES.keys())
def test_a_departure(before: Manifest, final: Manifest | None, seen: bool, end: JobPhase | None) -> None:
    job = WorkerJobReading.from_manifest(before)
    assert job is not None
    departure = Departure.of(job, final)
    assert (departure.worker_uid, departure.seen) == ("worker-uid", seen)
    assert (departure.end.phase if departure.end else None) == end


def test_the_report_of_an_end_is_of_the_job_as_it_was_then() -> None:
    job = WorkerJobReading.from_manifest(a_job())
    final = a_job(over="Complete", version=4, workload="w2")
    assert job is not None
    end = Departure.of(job, final).end
    assert end is not None
    assert (end.job, end.workload, end.spec_version, end.message) == (job.ref, "w2", 4, "so it ended")
    assert end.job_status == final["status"]
    assert msgspec.json.decode(msgspec.json.encode(Departure.of(job, final)), type=Departure).end == end
