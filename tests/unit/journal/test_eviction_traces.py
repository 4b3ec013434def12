"""Evictions as traces: one change with one sentence, and the next admission is another one."""

from datetime import timedelta
from pathlib import Path

import pytest

from slicebus.cli.journal.source import records_of_file
from slicebus.journal.entry import Entry
from slicebus.journal.traces import STEP, Trace, TraceOutcome, traces
from slicebus.proto.messages import Applied, JobRef, Suspend
from unit.journal.records import JOB
from unit.journal.test_traces import Recording, spec, status

REPLAYS = Path(__file__).parents[2] / "replays"


def recorded(name: str, job: str = "Job/team-a/job-a", *, decisions: bool = True) -> list[Trace]:
    """The traces of a job in a recording; without what was decided, only those of its messages."""
    entries = [Entry.from_record(record) for record in records_of_file(str(REPLAYS / f"{name}.jsonl.gz"))]
    found = traces(entry for entry in entries if decisions or not entry.is_decisions)
    return [trace for trace in found if trace.job == job]


def words(trace: Trace) -> list[str]:
    """Each hop by its type, a step by its first two words."""
    return [hop.type if hop.type != STEP else " ".join(hop.text.split()[:2]) for hop in trace.hops]


def only(found: list[Trace], title: str) -> Trace:
    (trace,) = [trace for trace in found if trace.title == title]
    return trace


def test_a_preemption_is_one_change_with_one_sentence() -> None:
    trace = only(recorded("eviction"), "eviction")
    assert trace.note.startswith("for Job/team-a/job-b: Preempted to accommodate a workload (UID: ")
    slice = "slice job-job-a-8bf0a"
    assert words(trace) == [slice, slice, "suspend", "suspends the", "applied", "frees the"]
    assert trace.hops[0].text.startswith("slice job-job-a-8bf0a is evicted: for Job/team-a/job-b")
    assert trace.hops[1].text.startswith("slice job-job-a-8bf0a is suspended: Quota is held until cluster east has no")
    assert trace.hops[-1].text == "frees the quota of slice job-job-a-8bf0a"
    assert (trace.outcome, round(trace.took.total_seconds(), 1)) == (TraceOutcome.DONE, 5.4)


def test_what_follows_an_eviction_is_another_change_which_says_how_long_it_waited() -> None:
    trace = only(recorded("eviction"), "start again with main=4")
    assert trace.outcome is TraceOutcome.DONE
    assert words(trace)[0] == "slice job-job-a-8bf0a"
    assert words(trace)[-1] == "status"
    assert "admits slice" in words(trace)
    assert trace.note.startswith("waited: couldn't assign flavors to pod set main")
    assert 0 < (trace.took - trace.waited).total_seconds() < 1


def test_no_recorded_step_says_nothing() -> None:
    for name in ("eviction", "lost-cluster"):
        texts = [hop.text for trace in recorded(name) for hop in trace.hops]
        assert not [text for text in texts if "for nothing" in text or "ClusterQueue  " in text]


def test_the_change_before_an_eviction_ends_when_its_pods_are_ready() -> None:
    took = {trace.title: trace.took for trace in recorded("eviction")}
    assert took["set to main=4"] < timedelta(seconds=1)
    assert took["resize main 2 -> 4"] < timedelta(seconds=1)


def test_a_start_ends_when_its_pods_are_ready_whatever_comes_later() -> None:
    """The cluster is cut off: it replaces pods for minutes, and the job moves. Its slice stays the same one."""
    start, eviction, again = recorded("lost-cluster")
    assert (start.title, start.cluster, round(start.took.total_seconds(), 1)) == ("start with main=2", "east", 0.5)
    assert (eviction.title, eviction.note) == ("eviction", "The cluster east is lost")
    assert eviction.took < timedelta(seconds=1), "the quota is free at once, and the pods go when the cluster is back"
    assert words(eviction)[-1] == "applied"
    assert (again.title, again.cluster, round(again.took.total_seconds(), 1)) == (
        "start again with main=2",
        "west",
        0.5,
    )
    assert again.hops[0].text == "admits slice job-job-a-eb199 for main=2 in ClusterQueue batch on cluster west"


def test_without_decisions_the_order_says_why() -> None:
    found = recorded("eviction", decisions=False)
    trace = only(found, "eviction")
    assert trace.note.startswith("Preempted to accommodate a workload")
    assert words(trace) == ["suspend", "applied"]
    assert trace.outcome is TraceOutcome.DONE
    assert only(found, "start again with main=4").outcome is TraceOutcome.DONE


def test_beside_a_kueue_the_order_says_why() -> None:
    trace = only(recorded("beside-kueue"), "eviction")
    assert (trace.note, trace.outcome) == ("At least one admission check is false", TraceOutcome.DONE)


def suspension(job: JobRef = JOB, reason: str = "EvictedDueToClusterQueueStopped") -> Suspend:
    return Suspend(
        job=job, spec_version=2, workload="job-sweep-1", reason=reason, message="The ClusterQueue is stopped"
    )


@pytest.mark.parametrize(
    ("reports", "outcome"),
    [([], TraceOutcome.UNDER_WAY), ([Applied(job=JOB, workload="job-sweep-1", spec_version=2)], TraceOutcome.DONE)],
    ids=["pods run", "no pod is left"],
)
def test_an_eviction_ends_with_the_agents_report(reports: list[Applied], outcome: TraceOutcome) -> None:
    recording = Recording()
    recording.add(0, spec(3, version=1))
    recording.add(20, status(3, version=1))
    recording.add(100, suspension())
    for report in reports:
        recording.add(5_100, report)
    start, eviction = traces(recording.entries)
    assert (eviction.title, eviction.note, eviction.outcome) == ("eviction", "The ClusterQueue is stopped", outcome)
    assert eviction.took == timedelta(seconds=5 if reports else 0)
    assert start.took == timedelta(milliseconds=20)


def test_a_second_eviction_is_another_change() -> None:
    recording = Recording()
    for round_ in range(2):
        version = 2 * round_ + 1
        recording.add(round_ * 10_000, spec(3, version=version))
        recording.add(round_ * 10_000 + 20, status(3, version=version))
        recording.add(
            round_ * 10_000 + 100,
            Suspend(job=JOB, spec_version=version + 1, workload="a", reason="EvictedDueToPreempted", message="why"),
        )
        recording.add(round_ * 10_000 + 900, Applied(job=JOB, workload="a", spec_version=version + 1))
    titles = [trace.title for trace in traces(recording.entries)]
    assert titles == ["start with main=3", "eviction", "start again with main=3", "eviction"]
