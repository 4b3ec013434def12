"""The steps that recorded decisions show, and their places in the traces of jobs."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from msgspec import Raw

from slicebus.bus.contract import Record as StreamRecord
from slicebus.cli.journal.source import records_of_file
from slicebus.journal.entry import Entry
from slicebus.journal.recording import (
    Decided,
    Failure,
    Put,
    Received,
    Record,
    SnapshotPart,
    Source,
    encode_batch,
    encode_record,
)
from slicebus.journal.steps import Consumed, RecordedStep, Steps
from slicebus.journal.traces import STEP, TraceOutcome, traces
from slicebus.proto.messages import Applied, Pending, ScaleRequest, Status, WorkloadSpec
from slicebus.slices.api import api_names, kueue
from unit.journal.records import BEGAN, JOB, entry

MANAGER, EAST = Source("manager", "", 1), Source("agent", "east", 1)
REF = msgspec.to_builtins(JOB)
KEY = {"kind": JOB.kind, "namespace": JOB.namespace, "name": JOB.name}
NOW = "2026-01-31T12:00:00Z"
WORKLOADS = "workloads.kueue.x-k8s.io"
TARGET = "Workload team/slice-2 u@7"


def batch(source: Source, *records: Record, number: int = 0) -> Entry:
    message = encode_batch(source, number, list(map(encode_record, records)), user="manager", at=BEGAN)
    return Entry.from_record(StreamRecord(offset=100 + number, message=message, timestamp=None))


def decided(*commands: dict[str, Any], at_s: float = 0.0, failed: Failure | None = None, **given: Any) -> Decided:
    at = (BEGAN + timedelta(seconds=at_s)).timestamp()
    return Decided(
        what="any", at=at, arguments=Raw(orjson.dumps(given)), outcome=Raw(orjson.dumps(commands)), failed=failed
    )


def create(name: str, count: int, *, replaces: str = "", owned: bool = True) -> dict[str, Any]:
    owner = {"kind": "Job", "name": JOB.name, "uid": JOB.uid, "controller": True}
    metadata = {"name": name, "namespace": JOB.namespace, "ownerReferences": [owner] if owned else []}
    metadata["annotations"] = {kueue.REPLACEMENT_FOR_ANNOTATION: f"team/{replaces}"} if replaces else {}
    manifest = {"kind": "Workload", "metadata": metadata, "spec": {"podSets": [{"name": "main", "count": count}]}}
    return {"do": "create", "of": WORKLOADS, "manifest": manifest}


def patch(of: str, target: str, body: Any) -> dict[str, Any]:
    return {"do": "patch", "of": of, "target": target, "subresource": "", "body": body}


def conditions(*found: tuple[str, str, str, str]) -> dict[str, Any]:
    said = [{"type": t, "status": s, "reason": r, "message": m, "lastTransitionTime": NOW} for t, s, r, m in found]
    return patch(WORKLOADS, TARGET, {"status": {"conditions": said}})


def on_job(body: dict[str, Any]) -> dict[str, Any]:
    return patch("jobs.batch", "Job team/train u@7", body)


def size_request(**recorded: Any) -> dict[str, Any]:
    recorded = {"worker_uid": "target", "worker_generation": 2} | recorded
    return on_job({"metadata": {"annotations": {api_names.REQUESTED_ANNOTATION: orjson.dumps(recorded).decode()}}})


def noted_on_slice(**recorded: Any) -> dict[str, Any]:
    return patch(WORKLOADS, TARGET, size_request(**recorded)["body"])


UNGATE = patch("pods", "Pod team/a u@1", [{"op": "remove"}])
ADMITTED = {
    "admission": {"clusterQueue": "batch", "podSetAssignments": [{"name": "main", "count": 5}]},
    "clusterName": "east",
    "conditions": [],
}
STEPS: dict[str, tuple[Source, dict[str, Any], str]] = {
    "a slice": (MANAGER, create("slice-2", 5), "creates slice slice-2 for main=5"),
    "the next": (
        MANAGER,
        create("slice-2", 5, replaces="slice-1"),
        "creates slice slice-2 for main=5, in place of slice-1",
    ),
    "a copy": (EAST, create("slice-2", 5), "creates the Workload slice-2"),
    "admission": (
        MANAGER,
        patch(WORKLOADS, TARGET, {"status": ADMITTED}),
        "admits slice slice-2 for main=5 in ClusterQueue batch on cluster east",
    ),
    "waiting": (
        MANAGER,
        conditions(("QuotaReserved", "False", "Pending", "3 more needed")),
        "slice slice-2 waits: 3 more needed",
    ),
    "an eviction": (
        MANAGER,
        conditions(("Evicted", "True", "Preempted", "for another")),
        "slice slice-2 is evicted: for another",
    ),
    "an eviction on its way": (
        MANAGER,
        conditions(("slicebus.dev/Dispatched", "False", "Suspending", "Quota is held")),
        "slice slice-2 is suspended: Quota is held",
    ),
    "the end": (
        MANAGER,
        conditions(("Finished", "True", "WorkloadSliceReplaced", "by another")),
        "slice slice-2 finished: WorkloadSliceReplaced",
    ),
    "a change in place": (
        MANAGER,
        patch(WORKLOADS, TARGET, {"spec": {"podSets": [{"name": "main", "count": 3}]}}),
        "resizes slice slice-2 to main=3",
    ),
    "a size request": (
        EAST,
        size_request(wanted={"main": 5}, unanswered=[["target", 2, {"main": 5}]]),
        "records the request for main=5",
    ),
    "a size request at the manager": (MANAGER, noted_on_slice(counts={"main": 5}), "records the request for main=5"),
    "a job": (
        EAST,
        {
            "do": "create",
            "of": "jobs.batch",
            "manifest": {"kind": "Job", "metadata": {"name": "train", "annotations": {kueue.PREBUILT_NAME: "slice-1"}}},
        },
        "creates the Job for slice slice-1",
    ),
    "another slice": (
        EAST,
        on_job(
            {"metadata": {"annotations": {kueue.PREBUILT_NAME: "slice-2", api_names.GRANTED_ANNOTATION: '{"main":5}'}}}
        ),
        "moves the job to slice slice-2, granted main=5",
    ),
    "suspension": (
        EAST,
        on_job(
            {
                "metadata": {"annotations": {kueue.PREBUILT_NAME: "slice-2", api_names.GRANTED_ANNOTATION: "{}"}},
                "spec": {"suspend": True},
            }
        ),
        "suspends the job, granted nothing",
    ),
    "a pod": (EAST, UNGATE, "ungates 1 pod"),
    "pods": (EAST, {"do": "patch each", "patches": [UNGATE, UNGATE], "lets_start": True}, "ungates 2 pods"),
    "deletion": (EAST, {"do": "remove", "of": "jobs.batch", "target": "Job team/train u@7"}, "deletes the Job train"),
}
NO_STEPS: dict[str, tuple[Source, dict[str, Any]]] = {
    "an entry of a table": (MANAGER, {"do": "remember", "table": "published", "key": {}, "value": 3}),
    "an entry that goes": (MANAGER, {"do": "forget", "table": "published", "key": {}}),
    "a message": (MANAGER, {"do": "publish", "to": "east", "type": "delete", "message": {}}),
    "an Event": (
        MANAGER,
        {"do": "emit", "regarding": "Job team/train u@7", "reason": "", "note": "", "warning": True},
    ),
    "an answered size request": (EAST, size_request(wanted={"main": 5}, unanswered=[])),
    "a mirrored condition": (EAST, conditions(("QuotaReserved", "False", "Pending", "no"))),
    "a condition of no interest": (MANAGER, conditions(("PodsReady", "True", "Started", "yes"))),
    "a status": (MANAGER, on_job({"status": {"ready": 1}})),
    "an unreadable annotation": (
        EAST,
        on_job({"metadata": {"annotations": {api_names.REQUESTED_ANNOTATION: "{"}}}),
    ),
    "another label": (EAST, on_job({"metadata": {"labels": {"a": "b"}}})),
}


def steps_of(*batches: Entry) -> list[RecordedStep]:
    steps = Steps()
    return [each for found in batches for each in steps.feed(found) if isinstance(each, RecordedStep)]


@pytest.mark.parametrize(("source", "command", "text"), STEPS.values(), ids=STEPS.keys())
def test_a_write_is_a_step(source: Source, command: dict[str, Any], text: str) -> None:
    [step] = steps_of(batch(source, decided(command, key=KEY, now=NOW, at_s=1.5)))
    assert (step.text, step.job, step.at) == (text, JOB.key, BEGAN + timedelta(seconds=1.5))


@pytest.mark.parametrize("place", ["ungate", 3, None], ids=["a stage", "a step of an order", "the last one"])
def test_a_write_beside_where_to_go_on_is_a_step(place: str | int | None) -> None:
    decision = msgspec.structs.replace(decided(key=KEY), outcome=Raw(orjson.dumps([place, [UNGATE, UNGATE]])))
    [step] = steps_of(batch(EAST, decision))
    assert (step.text, step.job) == ("ungates 2 pods", JOB.key)


@pytest.mark.parametrize(("source", "command"), NO_STEPS.values(), ids=NO_STEPS.keys())
def test_a_write_that_only_keeps_books_is_no_step(source: Source, command: dict[str, Any]) -> None:
    assert steps_of(batch(source, decided(command, key=KEY, now=NOW))) == []


def test_a_slice_leads_to_its_job() -> None:
    manifest = create("slice-2", 5)["manifest"]
    waits = conditions(("QuotaReserved", "False", "Pending", "no quota"))
    applied = decided(waits, decision={"key": "team/slice-2"}, now=NOW)
    unknown = decided(waits, decision={"key": "team/other"}, now=NOW)
    [step] = steps_of(batch(MANAGER, Put(of=WORKLOADS, object=manifest), unknown, applied))
    assert (step.job, step.slice, step.waits) == (JOB.key, "slice-2", "no quota")


def test_a_repeated_condition_is_no_step() -> None:
    first, other = (conditions(("QuotaReserved", "False", "Pending", text)) for text in ("3 more", "2 more"))
    found = steps_of(batch(MANAGER, *(decided(each, job=REF, now=NOW) for each in (first, first, other))))
    assert [step.waits for step in found] == ["3 more", "2 more"]
    old = decided(first, job=REF, now="2026-01-31T13:00:00Z")
    assert steps_of(batch(MANAGER, old)) == [], "it was so before the recording"
    twice = batch(MANAGER, decided(create("slice-2", 5), job=REF, now=NOW))
    assert len(steps_of(twice, twice)) == 1, "published twice"


def requesting(count: int, generation: int) -> dict[str, Any]:
    """A slice with the request that it was made for, or a copy of it."""
    command = create("slice-2", count)
    record = {"counts": {"main": count}, "worker_uid": "target", "worker_generation": generation}
    noted = {api_names.REQUESTED_ANNOTATION: orjson.dumps(record).decode()}
    command["manifest"]["metadata"]["annotations"] |= noted
    return command


def test_a_slice_that_is_made_for_a_request_records_it() -> None:
    asked = entry(REQUEST, offset=1, at_s=1.0)
    handled = decided(requesting(5, 2), incoming=1, now=NOW, at_s=1.1)
    found = steps_of(batch(MANAGER, received(asked, at_s=1.0), handled))
    assert [step.text for step in found] == ["records the request for main=5", "creates slice slice-2 for main=5"]
    assert found[0].request == ("target", 2)
    assert {step.correlation_id for step in found} == {asked.correlation_id}


def test_one_that_is_made_later_has_a_copy() -> None:
    found = steps_of(batch(MANAGER, decided(requesting(5, 2), job=REF, now=NOW)))
    assert [step.name for step in found] == ["slice created"]


# --- in traces ------------------------------------------------------------------------------------------------------

REQUEST = ScaleRequest(
    job=JOB,
    workload="slice-1",
    worker_uid="target",
    worker_generation=2,
    granted={"main": 1},
    wanted={"main": 5},
    why="parallelism changed",
)
SPEC = WorkloadSpec(
    job=JOB, spec_version=2, workload={"metadata": {"name": "slice-2"}}, manifest={}, granted={"main": 5}
)


def received(message: Entry, *, at_s: float, number: int = 1, problem: str = "") -> Received:
    at = (BEGAN + timedelta(seconds=at_s)).timestamp()
    return Received.from_wire(message.record.message, number=number, at=at, problem=problem)


def hops(entries: Sequence[Entry]) -> list[str]:
    [trace] = traces(entries)
    return [hop.text if hop.type == STEP else hop.type for hop in trace.hops]


def a_resize(*, manager_s: float = 0.0) -> list[Entry]:
    """The manager's clock goes before the agent's by so much."""
    asked = entry(REQUEST, offset=1, at_s=1.0)
    spec = entry(SPEC, offset=2, at_s=1.3 + manager_s, chain=asked.correlation_id)
    done = entry(Applied(job=JOB, workload="slice-2", spec_version=2), offset=3, at_s=1.6, chain=asked.correlation_id)
    manager = batch(
        MANAGER,
        received(asked, at_s=1.1 + manager_s),
        decided(noted_on_slice(counts={"main": 5}), incoming=1, now=NOW, at_s=1.1 + manager_s),
        decided(create("slice-2", 5), job=REF, now=NOW, at_s=1.2 + manager_s),
    )
    east = batch(
        EAST,
        decided(size_request(wanted={"main": 5}, unanswered=[["target", 2, {"main": 5}]]), key=KEY, at_s=0.9),
        received(spec, at_s=1.4),
        decided(create("slice-2", 5, owned=False), incoming=1, at_s=1.5),
        decided(UNGATE, UNGATE, key=KEY, at_s=1.7),
    )
    return [asked, spec, done, manager, east]


IN_ORDER = [
    "records the request for main=5",
    "scale-request",
    "records the request for main=5",
    "creates slice slice-2 for main=5",
    "workload-spec",
    "creates the Workload slice-2",
    "applied",
    "ungates 2 pods",
]


@pytest.mark.parametrize("manager_s", [0.0, 60.0, -60.0], ids=["one time", "manager before", "manager behind"])
def test_steps_are_in_causal_order_whatever_the_clocks_show(manager_s: float) -> None:
    entries = a_resize(manager_s=manager_s)
    assert hops(entries) == IN_ORDER
    [trace] = traces(entries)
    assert (trace.clocks_apart > timedelta(seconds=59)) is bool(manager_s)


def test_a_first_slice_that_waits_has_a_trace_without_a_message() -> None:
    waits = conditions(("QuotaReserved", "False", "Pending", "3 more needed"))
    records = [decided(command, job=REF, now=NOW, at_s=1) for command in (create("slice-2", 5), waits)]
    [trace] = traces([batch(MANAGER, *records)])
    assert (trace.job, trace.title, trace.outcome) == (JOB.key, "wants main=5", TraceOutcome.WAITS)
    assert trace.note == "3 more needed"
    admits = patch(WORKLOADS, TARGET, {"status": ADMITTED})
    [trace] = traces([batch(MANAGER, *records, decided(admits, job=REF, now=NOW, at_s=2))])
    assert (trace.outcome, trace.note) == (TraceOutcome.UNDER_WAY, "waited: 3 more needed")


def test_a_slice_that_a_message_names_begins_its_trace() -> None:
    spec = entry(SPEC, offset=1, at_s=2)
    made = decided(create("slice-2", 5), job=REF, now=NOW, at_s=1)
    assert hops([batch(MANAGER, made), spec]) == ["creates slice slice-2 for main=5", "workload-spec"]


def test_a_decision_of_the_manager_overrules_its_message() -> None:
    asked = entry(REQUEST, offset=1)
    said = Pending(
        job=JOB,
        workload="slice-2",
        worker_uid="target",
        worker_generation=2,
        wanted={"main": 5},
        reason="Pending",
        message="3 more needed",
        since=NOW,
    )
    pending = entry(said, offset=2, at_s=1, chain=asked.correlation_id)
    [trace] = traces([asked, pending])
    assert trace.outcome is TraceOutcome.WAITS
    admits = patch(WORKLOADS, TARGET, {"status": ADMITTED})
    [trace] = traces([asked, pending, batch(MANAGER, decided(admits, job=REF, now=NOW, at_s=2))])
    assert trace.outcome is TraceOutcome.UNDER_WAY


@pytest.mark.parametrize("decoded", [True, False])
def test_a_message_that_was_dead_lettered_says_why(decoded: bool) -> None:
    asked = entry(REQUEST, offset=1)
    error = Failure(error="ProtocolError", text="fenced-epoch: epoch 1")
    refused = batch(
        MANAGER,
        received(asked, at_s=1, problem="" if decoded else error.text),
        *([decided(incoming=1, failed=error, at_s=1)] if decoded else []),
    )
    [trace] = traces([asked, refused])
    assert (trace.outcome, trace.note) == (TraceOutcome.DEAD, "fenced-epoch: epoch 1")
    assert trace.hops[-1].text == "dead-letters the scale-request: fenced-epoch: epoch 1"
    answered = entry(SPEC, offset=3, at_s=3, chain=asked.correlation_id)
    [trace] = traces([asked, refused, answered])
    assert trace.outcome is TraceOutcome.UNDER_WAY, "it was requeued, or sent again"


def test_a_conflict_is_no_dead_letter() -> None:
    asked = entry(REQUEST, offset=1)
    conflict = Failure(error="ConflictError", text="changed")
    [trace] = traces([asked, batch(MANAGER, received(asked, at_s=1), decided(incoming=1, failed=conflict, at_s=1))])
    assert trace.outcome is TraceOutcome.UNDER_WAY


def test_each_consumed_message_is_an_event() -> None:
    asked = entry(REQUEST, offset=1)
    [consumed] = list(Steps().feed(batch(MANAGER, received(asked, at_s=2))))
    assert consumed == Consumed(MANAGER, BEGAN + timedelta(seconds=2), JOB.key, asked.record.message.message_id or "")
    other = Steps(lambda job: False)
    assert list(other.feed(batch(MANAGER, received(asked, at_s=2)))) == []


def test_what_is_no_batch_has_no_steps() -> None:
    steps = Steps()
    assert list(steps.feed(entry(REQUEST))) == []
    broken = batch(MANAGER)
    wire = msgspec.structs.replace(broken.record.message, body=b"{")
    assert list(steps.feed(Entry.from_record(msgspec.structs.replace(broken.record, message=wire)))) == []


def test_a_recorded_life_has_every_hop() -> None:
    file = Path(__file__).parents[2] / "replays" / "life-of-a-job.jsonl.gz"
    entries = [Entry.from_record(record) for record in records_of_file(str(file))]
    assert any(isinstance(e.received.message, Status) for e in entries if e.received)
    found = traces(entries)
    [grown] = [trace for trace in found if trace.title == "resize main 1 -> 3"]
    assert grown.outcome is TraceOutcome.DONE
    words = [hop.type if hop.type != STEP else f"{hop.by} {hop.text.split()[0]}" for hop in grown.hops]
    expected = [
        "east records",
        "scale-request",
        "manager records",
        "manager creates",
        "manager admits",
        "workload-spec",
    ]
    expected += ["east moves", "applied", "status"]
    assert [word for word in words if word in expected] == expected
    assert "ungates 2 pods" in [hop.text for hop in grown.hops]
    assert [hop.type for hop in found[-1].hops if hop.type != STEP] == ["delete", "applied"]
    assert found[-1].outcome is TraceOutcome.DONE


def snapshot(*slices: str) -> list[Record]:
    """The state of a manager that has these slices."""
    owner = {"kind": "Job", "name": JOB.name, "uid": JOB.uid, "controller": True}
    metadata = [{"name": name, "namespace": JOB.namespace, "uid": name, "ownerReferences": [owner]} for name in slices]
    content = tuple(Put(of=WORKLOADS, object={"metadata": each}) for each in metadata)
    return [SnapshotPart(part=0, content=content), SnapshotPart(part=1, last=True)]


def test_a_slice_that_the_next_snapshot_does_not_have_is_forgotten() -> None:
    """A journal may be followed for months."""
    steps, admitted = Steps(), decided(patch(WORKLOADS, TARGET, {"status": {"admission": {"clusterQueue": "cq"}}}))
    list(steps.feed(batch(MANAGER, *snapshot("slice-2"))))
    known = [event for event in steps.feed(batch(MANAGER, admitted, number=1)) if isinstance(event, RecordedStep)]
    assert [(step.job, step.name) for step in known] == [(JOB.key, "admission")]
    list(steps.feed(batch(MANAGER, *snapshot("slice-3"), number=2)))
    assert not list(steps.feed(batch(MANAGER, admitted, number=3)))
