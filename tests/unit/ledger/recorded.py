"""What a manager records, made by hand: objects, decisions and messages, in batches."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from msgspec import Raw

from slicebus.bus.contract import Record as StreamRecord
from slicebus.journal.entry import Entry
from slicebus.journal.recording import (
    Began,
    Decided,
    Gone,
    Put,
    Received,
    Record,
    SnapshotPart,
    Source,
    encode_batch,
    encode_record,
)
from slicebus.ledger.bookkeeper import Bookkeeper
from slicebus.ledger.facts import Fact
from slicebus.proto.messages import JobPhase, JobRef, PodSetStatus, Status
from unit.journal.records import record as message_record

BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)
BEGAN_MS = round(BEGAN.timestamp() * 1000)
WORKLOADS = "workloads.kueue.x-k8s.io"
JOB = JobRef("batch/v1", "Job", "team", "train", "job-1")


def text_of(at_s: float) -> str:
    """A time after the beginning, as objects have it."""
    return f"{BEGAN + timedelta(seconds=at_s):%Y-%m-%dT%H:%M:%SZ}"


def ms_of(at_s: float) -> int:
    """The same, as facts have it."""
    return BEGAN_MS + round(at_s * 1000)


def workload(
    name: str,
    version: int,
    *,
    pods: int = 2,
    admitted: int | None = None,
    admitted_s: float = 0.0,
    finished_s: float | None = None,
    evicted_s: float | None = None,
    reason: str = "Preempted",
    pending: str = "Pending",
    created_s: float = 0.0,
    **annotations: str,
) -> dict[str, Any]:
    """A slice of the one job; `admitted` is how many pods have quota."""
    has_quota = admitted is not None
    conditions = [_condition("QuotaReserved", has_quota, admitted_s, "QuotaReserved" if has_quota else pending)]
    if evicted_s is not None:
        conditions.append(_condition("Evicted", True, evicted_s, reason))
    if finished_s is not None:
        conditions.append(_condition("Finished", True, finished_s, "Succeeded"))
    status: dict[str, Any] = {"conditions": conditions}
    if admitted is not None:
        usage = {"cpu": f"{2 * admitted}", "nvidia.com/gpu": f"{admitted}"}
        flavors = {"cpu": "cpu", "nvidia.com/gpu": "a100"}
        pod_set = {"name": "main", "count": admitted, "flavors": flavors, "resourceUsage": usage}
        status |= {"admission": {"clusterQueue": "batch", "podSetAssignments": [pod_set]}, "clusterName": "east"}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": text_of(created_s),
            "labels": {"kueue.x-k8s.io/job-uid": JOB.uid},
            "annotations": annotations,
            "ownerReferences": [{"kind": JOB.kind, "name": JOB.name, "uid": JOB.uid, "controller": True}],
        },
        "spec": {
            "queueName": "queue",
            "priority": 100,
            "priorityClassRef": {"name": "high"},
            "podSets": [{"name": "main", "count": pods, "template": {"spec": {"containers": []}}}],
        },
        "status": status,
    }


def _condition(type: str, holds: bool, at_s: float, reason: str) -> dict[str, str]:
    return {
        "type": type,
        "status": str(holds),
        "reason": reason,
        "message": f"it is {reason}",
        "lastTransitionTime": text_of(at_s),
    }


def replacing(name: str) -> dict[str, str]:
    """The annotation of a slice that replaces another."""
    return {"kueue.x-k8s.io/workload-slice-replacement-for": f"team/{name}"}


def put(manifest: dict[str, Any], of: str = WORKLOADS) -> Put:
    """An object, whole."""
    return Put(of=of, object=manifest)


def gone(name: str) -> Gone:
    """A slice that was deleted."""
    return Gone(of=WORKLOADS, namespace="team", name=name)


def clock(at_s: float) -> Decided:
    """A decision without an effect: it says what time it is."""
    return Decided(what="reconcile", at=ms_of(at_s) / 1000, arguments=Raw(b"{}"))


def reported(at_s: float, name: str, ready: int, *, number: int = 1, taken: bool = True) -> list[Record]:
    """A status of a worker, and the decision about it."""
    status = Status(
        job=JOB,
        workload=name,
        spec_version=1,
        phase=JobPhase.RUNNING,
        pods={"main": PodSetStatus(ready=ready, total=ready)},  # type: ignore[dict-item]
    )
    at = ms_of(at_s) / 1000
    note = {"do": "remember", "table": "last_status", "key": ["uid-1", JOB.uid], "value": [1, number]}
    outcome = orjson.dumps([note] if taken else [])
    return [
        Received.from_wire(message_record(status).message, number=number, at=at),
        Decided(what="receive", at=at, arguments=Raw(orjson.dumps({"incoming": number})), outcome=Raw(outcome)),
    ]


def snapshot(*manifests: dict[str, Any]) -> SnapshotPart:
    """All that there is."""
    return SnapshotPart(part=0, last=True, content=tuple(map(put, manifests)))


class Leader:
    """One leader, that records."""

    def __init__(self, epoch: int = 1, shard: int = 0, role: Any = "manager") -> None:
        self.source = Source(role, "east" if role == "agent" else "", epoch, shard=shard)
        self.number = 0

    def begins(self, at_s: float, *manifests: dict[str, Any]) -> Entry:
        """Its first batch."""
        return self.batch(at_s, Began(version="1"), clock(at_s), snapshot(*manifests))

    def batch(self, at_s: float, *records: Record) -> Entry:
        """The next batch, published then."""
        at = BEGAN + timedelta(seconds=at_s)
        wire = encode_batch(self.source, self.number, [*map(encode_record, records)], user="manager", at=at)
        self.number += 1
        return Entry.from_record(StreamRecord(offset=self.number, message=wire, timestamp=at))


def facts_of(keeper: Bookkeeper, *entries: Entry) -> list[Fact]:
    """The facts of entries."""
    return [fact for entry in entries for fact in keeper.feed(entry)]
