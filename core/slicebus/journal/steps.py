"""Reads the steps of a job between its messages from recorded decisions: a slice was made or admitted, pods may start.

A step is one write that a role decided on, at the time of that decision. The write follows at once. A write that only
keeps the role's own books is no step, and neither is one that repeats what an earlier step showed.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson

from slicebus.journal.entry import Entry
from slicebus.journal.recorded_commands import (
    Created,
    Emitted,
    Forgotten,
    Patched,
    PatchedEach,
    Published,
    RecordedCommand,
    Remembered,
    Removed,
    Requeued,
    commands_of,
)
from slicebus.journal.recording import (
    Began,
    Decided,
    Forgot,
    Gap,
    Gone,
    Noted,
    Put,
    Received,
    Record,
    SnapshotPart,
    Source,
    decode_batch,
)
from slicebus.journal.redaction import Redactor
from slicebus.proto.errors import InvalidError, ProtocolError
from slicebus.proto.headers import PREFIX, SUBJECT
from slicebus.proto.messages import Counts, Manifest, counts_text
from slicebus.slices.admission.preemption import preemptor_uid
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.kueue import Condition
from slicebus.slices.api.owners import job_name_of

_WORKLOADS = "workloads.kueue.x-k8s.io"
_MOST_KEPT = 4096
"""Most messages that are kept: a later decision may refer to one."""
_CONDITION_WORDS = {
    (Condition.QUOTA_RESERVED, "False"): "waits",
    (Condition.EVICTED, "True"): "is evicted",
    (Condition.FINISHED, "True"): "finished",
    (api_names.RESIZABLE_CONDITION, "False"): "cannot be resized",
    (api_names.DISPATCHED_CONDITION, "False"): "is not carried out",
}
"""The conditions of a slice that are steps, and the words for them."""
_NONSENSE = (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError)
"""The errors of reading a record of the right form that makes no sense: anybody may have published it."""

Subject = Callable[[str], bool]


class RecordedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One write, or one message that could not be used."""

    source: Source
    at: datetime
    job: str
    """`Kind/namespace/name`."""
    name: str
    """What was done, in words that do not vary: `slice created`, `admission`."""
    text: str
    correlation_id: str = ""
    """The chain of the message that was being handled; empty where none was."""
    slice: str = ""
    """The slice that it makes, admits or leaves waiting: the step belongs to the first message that names it."""
    request: tuple[str, int] | None = None
    """The size request that it records, by its idempotency key: worker UID and generation."""
    counts: Counts = {}
    """The pod counts of the slice that it makes."""
    waits: str = ""
    """Why the slice waits; empty where it does not."""
    admitted: bool = False
    evicted: str = ""
    """Why the slice is evicted; empty where it is not."""
    leaves: bool = False
    """Whether the slice leaves its quota: it is evicted, its worker's pods are waited for, or the quota is free."""
    released: bool = False
    """Whether that quota is free now."""
    dead: str = ""
    """Why the message was dead-lettered."""


class Consumed(msgspec.Struct, frozen=True):
    """A role consumed a message from its queue, at that time by its clock."""

    source: Source
    at: datetime
    job: str
    message_id: str


class Steps:
    """Reads steps from recorded batches. Feed it from a snapshot on, which says which slice belongs to which job.

    What a batch says comes out without secrets, also where its role has recorded them.
    """

    def __init__(self, wanted: Subject = lambda job: True) -> None:
        self._wanted = wanted
        self._redactor = Redactor()
        self._sources: dict[Source, _Reader] = {}

    def feed(self, entry: Entry) -> Iterator[RecordedStep | Consumed]:
        """The steps of the wanted jobs in a batch of decisions, and what was consumed; nothing for any other entry."""
        if not entry.is_decisions:
            return
        try:
            batch = decode_batch(entry.record.message)
        except InvalidError:
            return
        reader = self._sources.setdefault(batch.source, _Reader(batch.source, self._redactor))
        if batch.number < reader.next:
            return  # Published twice.
        reader.next = batch.number + 1
        for record in batch.records:
            try:
                events = list(reader.read(record))
            except _NONSENSE:
                continue
            yield from (event for event in events if self._wanted(event.job))


class _Reader:
    """Reads the records of one source."""

    def __init__(self, source: Source, redactor: Redactor) -> None:
        self.next = 0
        self._source = source
        self._redactor = redactor
        self._jobs: dict[str, str] = {}
        """The job of each slice, by `namespace/name`."""
        self._present: dict[str, str] | None = None
        """The same since the snapshot that is being read began; None between snapshots."""
        self._received: dict[int, Received] = {}
        self._conditions: dict[tuple[str, str], tuple[str, str]] = {}
        """The last status and message of each condition, by slice and type."""
        self._requests: dict[str, tuple[str, int]] = {}
        self._owners: dict[str, str] = {}
        """The job of each Workload, by its UID: an eviction names who takes the quota by that."""

    def read(self, record: Record) -> Iterator[RecordedStep | Consumed]:
        match record:
            case SnapshotPart(part=number, last=is_last, content=content):
                if number == 0:
                    self._present = {}
                for part in content:
                    self._learn(part)
                if is_last:
                    self._forget_gone()
            case Put():
                self._learn(record)
            case Received():
                yield from self._receive(record)
            case Decided():
                yield from self._decide(record)
            case Began() | Gone() | Noted() | Forgot() | Gap():
                return

    def _learn(self, record: object) -> None:
        """Remember which job a slice belongs to."""
        if isinstance(record, Put) and record.of == _WORKLOADS:
            metadata = record.object["metadata"]
            if job := _owner(metadata):
                self._note(f"{metadata['namespace']}/{metadata['name']}", job)
                self._owners[metadata["uid"]] = job

    def _note(self, slice: str, job: str) -> None:
        self._jobs[slice] = job
        if self._present is not None:
            self._present[slice] = job

    def _forget_gone(self) -> None:
        """Forget the slices that the snapshot does not have: a journal may be followed for months."""
        self._jobs, self._present = self._jobs if self._present is None else self._present, None
        jobs = {*self._jobs.values()}
        self._owners = {uid: job for uid, job in self._owners.items() if job in jobs}
        self._requests = {job: request for job, request in self._requests.items() if job in jobs}
        self._conditions = {key: said for key, said in self._conditions.items() if key[0] in self._jobs}

    def _receive(self, record: Received) -> Iterator[RecordedStep | Consumed]:
        self._received[record.number] = record
        if len(self._received) > _MOST_KEPT:
            del self._received[next(iter(self._received))]
        job = record.headers.get(SUBJECT, "")
        at = _moment(record.at)
        yield Consumed(self._source, at, job, record.message_id or "")
        if record.problem:
            yield self._dead(record, at, record.problem)

    def _decide(self, record: Decided) -> Iterator[RecordedStep]:
        commands = commands_of(self._redactor.encoded(bytes(record.outcome)))
        if record.failed is None and not commands:
            return
        arguments = orjson.loads(bytes(record.arguments))
        received = self._received.get(arguments.get("incoming", -1))
        at = _moment(record.at)
        if record.failed is not None:
            if received is not None and record.failed.error == ProtocolError.__name__:
                yield self._dead(received, at, record.failed.text)
            return
        job = self._job(arguments, received)
        chain = _correlation(received) if received else ""
        for step in self._steps(commands, job, arguments.get("now", ""), handled=received is not None):
            if step.job:
                yield msgspec.structs.replace(step, at=at, correlation_id=step.correlation_id or chain)

    def _steps(self, commands: list[RecordedCommand], job: str, now: str, *, handled: bool) -> Iterator[RecordedStep]:
        for command in commands:
            yield from self._written(command, job, now, handled=handled)
        ungated = sum(isinstance(command, Patched) and command.of == "pods" for command in commands)
        if ungated:
            yield self._step(job, "pods ungated", f"ungates {ungated} {'pod' if ungated == 1 else 'pods'}")

    def _written(self, command: RecordedCommand, job: str, now: str, *, handled: bool) -> Iterator[RecordedStep]:
        match command:
            case Created(manifest=manifest) if command.of == _WORKLOADS:
                yield from self._created(manifest, job, handled=handled)
            case Created(manifest={"kind": kind, "metadata": metadata}) if job.startswith(f"{kind}/"):
                name = metadata.get("annotations", {}).get(kueue.PREBUILT_NAME, "")
                yield self._step(job, "job created", f"creates the {kind} for slice {name}")
            case Patched(body=dict(body)) if command.of == _WORKLOADS:
                yield from self._patched(command.target, body, job, now)
            case Patched(body=dict(body)) if command.of != "pods":
                yield from self._job_patched(body, job)
            case Removed(target=target):
                kind, name = target.split()[:2]
                yield self._step(job, "object deleted", f"deletes the {kind} {name.rpartition('/')[2]}")
            case Created() | Patched() | PatchedEach():
                return  # Of other objects: pods are counted, not told one by one.
            case Remembered() | Forgotten() | Emitted() | Published() | Requeued():
                return  # What is published is an entry of its own, and the rest changes no object.

    def _created(self, manifest: Manifest, job: str, *, handled: bool) -> Iterator[RecordedStep]:
        """The steps of a new Workload. One that is made as a message is `handled` has its request, any other a copy."""
        metadata = manifest["metadata"]
        name, annotations = metadata["name"], metadata.get("annotations", {})
        job = job or _owner(metadata)
        self._note(f"{metadata['namespace']}/{name}", job)
        if self._source.role == "agent":
            yield self._step(job, "workload created", f"creates the Workload {name}")
            return
        if handled and (text := annotations.get(api_names.REQUESTED_ANNOTATION)) is not None:
            yield from self._request(text, job)
        replaced = annotations.get(kueue.REPLACEMENT_FOR_ANNOTATION, "").rpartition("/")[2]
        counts = _counts(manifest["spec"])
        text = f"creates slice {name} for {counts_text(counts)}" + (f", in place of {replaced}" if replaced else "")
        yield self._step(job, "slice created", text, slice=name, counts=counts)

    def _patched(self, target: str, body: Manifest, job: str, now: str) -> Iterator[RecordedStep]:
        """The steps of a patched slice; none on an agent, which mirrors the manager's decisions."""
        if self._source.role == "agent":
            return
        _, key, _ = target.split()
        name = key.rpartition("/")[2]
        job = job or self._jobs.get(key, "")
        annotations = body.get("metadata", {}).get("annotations") or {}
        if (text := annotations.get(api_names.REQUESTED_ANNOTATION)) is not None:
            yield from self._request(text, job)
        if "podSets" in body.get("spec", {}):
            yield self._step(job, "slice resized", f"resizes slice {name} to {counts_text(_counts(body['spec']))}")
        status = body.get("status", {})
        if status.get("admission"):
            yield self._admitted(name, status, job)
        elif "admission" in status:
            yield self._released(key, status, job)
        for condition in status.get("conditions", ()):
            yield from self._condition(key, condition, job, now)

    def _released(self, key: str, status: Manifest, job: str) -> RecordedStep:
        """The step of a quota that is free again. The conditions of the same write repeat why it was evicted."""
        for condition in status.get("conditions", ()):
            self._conditions[key, condition["type"]] = condition["status"], condition.get("message", "")
        name = key.rpartition("/")[2]
        text = f"frees the quota of slice {name}"
        return self._step(job, "quota freed", text, slice=name, leaves=True, released=True)

    def _admitted(self, name: str, status: Manifest, job: str) -> RecordedStep:
        admission = status["admission"]
        counts = {
            assignment["name"]: assignment.get("count", 0) for assignment in admission.get("podSetAssignments", ())
        }
        where = f"in ClusterQueue {admission.get('clusterQueue', '')} on cluster {status.get('clusterName', '')}"
        text = f"admits slice {name} for {counts_text(counts)} {where}"
        return self._step(job, "admission", text, slice=name, admitted=True)

    def _condition(self, key: str, condition: Manifest, job: str, now: str) -> Iterator[RecordedStep]:
        """The step of a condition that this decision has changed."""
        type, status, message = condition["type"], condition["status"], condition.get("message", "")
        stated = (status, message)
        if self._conditions.get((key, type)) == stated:
            return
        known = (key, type) in self._conditions
        self._conditions[key, type] = stated
        is_suspended = condition.get("reason") == api_names.SUSPENDING
        word = "is suspended" if is_suspended else _CONDITION_WORDS.get((type, status))
        if word is None or not (known or condition.get("lastTransitionTime") == now):
            return
        name = key.rpartition("/")[2]
        waits, evicted = type == Condition.QUOTA_RESERVED, type == Condition.EVICTED
        if evicted and (preemptor := self._owners.get(preemptor_uid(message) or "")):
            message = f"for {preemptor}: {message}"
        finished = type == Condition.FINISHED
        yield self._step(
            job,
            f"slice {word}",
            f"slice {name} {word}: {condition['reason'] if finished else message}",
            slice=name if waits or evicted or is_suspended else "",
            waits=message if waits else "",
            evicted=message or condition.get("reason", "") if evicted else "",
            leaves=evicted or is_suspended,
        )

    def _job_patched(self, body: Manifest, job: str) -> Iterator[RecordedStep]:
        metadata = body.get("metadata", {})
        annotations = metadata.get("annotations") or {}
        if (text := annotations.get(api_names.REQUESTED_ANNOTATION)) is not None:
            yield from self._request(text, job)
        if kueue.PREBUILT_NAME in annotations:
            granted = _read(annotations.get(api_names.GRANTED_ANNOTATION, "{}"))
            suspends = annotations.get(api_names.GRANTED_ANNOTATION) == "{}"
            text = "suspends the job" if suspends else f"moves the job to slice {annotations[kueue.PREBUILT_NAME]}"
            name = "job suspended" if suspends else "job moved"
            yield self._step(job, name, f"{text}, granted {counts_text(granted)}")

    def _request(self, text: str, job: str) -> Iterator[RecordedStep]:
        """The step of a size request, once: its answer is recorded in the same place later."""
        recorded = _read(text)
        if not recorded.get("worker_uid") or recorded.get("unanswered") == []:
            return
        counts = recorded.get("wanted") or recorded.get("counts") or {}
        request = str(recorded.get("worker_uid", "")), int(recorded.get("worker_generation", 0))
        if self._requests.get(job) == request:
            return
        self._requests[job] = request
        yield self._step(job, "request", f"records the request for {counts_text(counts)}", request=request)

    def _dead(self, received: Received, at: datetime, why: str) -> RecordedStep:
        job, why = received.headers.get(SUBJECT, ""), self._redactor.value(why)
        text = f"dead-letters the {received.type or 'message'}: {why}"
        step = self._step(job, "dead letter", text, correlation_id=_correlation(received), dead=why)
        return msgspec.structs.replace(step, at=at)

    def _job(self, arguments: Manifest, received: Received | None) -> str:
        match arguments:
            case {"job": {"kind": kind, "namespace": namespace, "name": name}} | {
                "key": {"kind": kind, "namespace": namespace, "name": name}
            }:
                return f"{kind}/{namespace}/{name}"
            case {"decision": {"key": str(key)}}:
                return self._jobs.get(key, "")
            case _:
                return received.headers.get(SUBJECT, "") if received else ""

    def _step(self, job: str, name: str, text: str, **more: Any) -> RecordedStep:
        at = datetime.min.replace(tzinfo=UTC)
        return RecordedStep(source=self._source, at=at, job=job, name=name, text=text, **more)


def _owner(metadata: Manifest) -> str:
    """The job of a slice: its owner on the manager, an annotation on a worker."""
    namespace = metadata.get("namespace", "")
    kind, name = job_name_of(metadata)
    return f"{kind}/{namespace}/{name}" if name else ""


def _counts(spec: Manifest) -> dict[str, int]:
    return {pod_set["name"]: pod_set.get("count", 1) for pod_set in spec["podSets"]}


def _correlation(received: Received) -> str:
    return received.correlation_id or received.headers.get(f"{PREFIX}correlationid", "") or received.message_id or ""


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _read(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
