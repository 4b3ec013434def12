"""One line on what a message says, for people."""

from slicebus.journal.entry import Entry
from slicebus.journal.recording import Decided, decode_batch
from slicebus.proto.errors import InvalidError
from slicebus.proto.messages import (
    Applied,
    Counts,
    Delete,
    Heartbeat,
    Hello,
    Inventory,
    JobPhase,
    Message,
    Pending,
    Refused,
    Relabel,
    Resync,
    ScaleRequest,
    Status,
    Suspend,
    Terms,
    WorkloadSpec,
)


def summary(entry: Entry) -> str:
    """What the entry says; for one that cannot be read, why."""
    if entry.is_decisions:
        return _of_batch(entry)
    return _of(entry.received.message) if entry.received else entry.problem


def counts_text(counts: Counts) -> str:
    """`head=1 small-group=5`."""
    return " ".join(f"{name}={count}" for name, count in counts.items()) or "nothing"


def _of_batch(entry: Entry) -> str:
    try:
        batch = decode_batch(entry.record.message)
    except InvalidError as error:
        return str(error)
    decided = sum(isinstance(record, Decided) for record in batch.records)
    return f"{batch.source}, batch {batch.number}: {len(batch.records)} records, {decided} decisions"


def _of(message: Message) -> str:
    match message:
        case Hello():
            return f"agent {message.agent_version}, Kubernetes {message.kubernetes_version}"
        case Heartbeat():
            return f"{message.jobs} jobs, {message.out_of_sync} out of sync"
        case ScaleRequest():
            return f"{counts_text(message.granted)} -> {counts_text(message.wanted)} ({message.why})"
        case Status(phase=JobPhase.GONE):
            return f"{message.phase}, {'seen to go' if message.seen is True else 'its end is unknown'}"
        case Status():
            ready = counts_text({name: pods.ready for name, pods in message.pods.items()})
            gated = sum(pods.gated for pods in message.pods.values())
            return f"{message.phase}, ready {ready}, gated {gated}, version {message.spec_version}"
        case Applied(deleted=True):
            return f"deleted, version {message.spec_version}"
        case Applied():
            return f"{message.workload or 'nothing'}, version {message.spec_version}"
        case Refused():
            return f"{message.reason}: {message.message}"
        case Inventory():
            return f"page {message.page}, {len(message.items)} jobs"
        case WorkloadSpec():
            name = message.workload.get("metadata", {}).get("name", "")
            return f"{name}, granted {counts_text(message.granted)}, version {message.spec_version}"
        case Relabel():
            moved = f"{message.from_workload} -> {message.to_workload}"
            return f"{moved}, granted {counts_text(message.granted)}, version {message.spec_version}"
        case Suspend() | Delete():
            return f"{message.reason}, version {message.spec_version}"
        case Pending():
            return f"{counts_text(message.wanted)} waits: {message.message}"
        case Resync():
            return message.reason
        case Terms():
            return f"version {message.version}, {len(message.flavors)} flavors"
    return ""
