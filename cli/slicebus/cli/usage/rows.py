"""The rows of `slicebus usage`, as tables, CSV and JSON have them. Pure."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

import msgspec

GROUPS = ("queue", "namespace", "flavor", "cluster", "priority", "user")
_HOUR_MS = 3_600_000
_GIB = 1024**3


class UsageFormat(StrEnum):
    """How usage is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


class UsageSums(Protocol):
    """The sums of one account: pods times milliseconds, waits that ended with quota, and pods that were killed."""

    granted_ms: int
    ready_ms: int
    waited_ms: int
    waits: int
    killed: int


class ResourceHours(msgspec.Struct, rename="camel"):
    """The hours of one resource: of cores, of GiB where it is counted in bytes, or of pieces."""

    granted: float = 0.0
    ready: float = 0.0
    idle: float = 0.0


class UsageRow(msgspec.Struct, kw_only=True, rename="camel"):
    """The use of one group."""

    group: dict[str, str]
    """The value of each field that it is grouped by."""
    granted_pod_seconds: float = 0.0
    ready_pod_seconds: float = 0.0
    idle_pod_seconds: float = 0.0
    """Of pods that had quota and were not ready."""
    waits: int = 0
    """How many waits ended with quota."""
    wait_seconds: float = 0.0
    """Of all that waited, also of those that wait still."""
    killed_pods: int = 0
    """Pods that lost their quota before their job had ended."""
    resource_hours: dict[str, ResourceHours] = {}


class NotKnown(msgspec.Struct, frozen=True):
    """A span of which the ledger does not say everything. `pod_seconds` is the most that is missing."""

    since_ms: int
    until_ms: int
    reason: str
    pod_seconds: float


class UsageReport(msgspec.Struct, frozen=True):
    """The use in a span, and what of it is not known."""

    since_ms: int
    until_ms: int
    began_ms: int | None
    """Since when the ledger has anything; None for an empty one."""
    rows: list[UsageRow]
    not_known: list[NotKnown]


def usage_row(group: dict[str, str], sums: Iterable[tuple[Mapping[str, float], UsageSums]]) -> UsageRow:
    """The row of a group, from its sums with what one pod was admitted with."""
    row, hours = UsageRow(group=group), defaultdict[str, ResourceHours](ResourceHours)
    for requests, found in sums:
        idle_ms = found.granted_ms - found.ready_ms
        row.granted_pod_seconds += found.granted_ms / 1000
        row.ready_pod_seconds += found.ready_ms / 1000
        row.idle_pod_seconds += idle_ms / 1000
        row.waits += found.waits
        row.wait_seconds += found.waited_ms / 1000
        row.killed_pods += found.killed
        for resource, amount in requests.items():
            unit = amount / (_GIB if is_bytes(resource) else 1)
            hours[resource].granted += unit * found.granted_ms / _HOUR_MS
            hours[resource].ready += unit * found.ready_ms / _HOUR_MS
            hours[resource].idle += unit * idle_ms / _HOUR_MS
    row.resource_hours = {resource: hours[resource] for resource in sorted(hours)}
    return row


def is_bytes(resource: str) -> bool:
    """Whether a resource is counted in bytes."""
    return resource == "memory" or resource.endswith("storage") or resource.startswith("hugepages-")


def as_json(report: UsageReport, by: Sequence[str]) -> bytes:
    """The report as one document."""
    return msgspec.json.encode(
        {
            "since": time_text(report.since_ms),
            "until": time_text(report.until_ms),
            "by": list(by),
            "items": [msgspec.to_builtins(row) for row in report.rows],
            "notKnown": [
                {
                    "since": time_text(span.since_ms),
                    "until": time_text(span.until_ms),
                    "reason": span.reason,
                    "podSeconds": span.pod_seconds,
                }
                for span in report.not_known
            ],
        }
    )


def as_csv(report: UsageReport, by: Sequence[str]) -> str:
    """The rows as CSV, with a line of titles."""
    resources = _resources(report)
    kinds = ("granted", "ready", "idle")
    titles = [*by, *(f"{kind}_pod_seconds" for kind in kinds), "waits", "wait_seconds", "killed_pods"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*titles, *(f"{unit_of(name)}_hours_{kind}" for name in resources for kind in kinds)])
    for row in report.rows:
        seconds = (row.granted_pod_seconds, row.ready_pod_seconds, row.idle_pod_seconds)
        hours = [row.resource_hours.get(name, ResourceHours()) for name in resources]
        writer.writerow(
            [
                *(row.group[name] for name in by),
                *(f"{value:.3f}" for value in seconds),
                row.waits,
                f"{row.wait_seconds:.3f}",
                row.killed_pods,
                *(f"{getattr(one, kind):.4f}" for one in hours for kind in kinds),
            ]
        )
    return text.getvalue()


def as_table(report: UsageReport, by: Sequence[str]) -> list[list[str]]:
    """The cells of a table, the titles first. Hours, because seconds are long."""
    resources = _resources(report)
    titles = [*(name.upper() for name in by), "POD HOURS", "READY", "IDLE", "WAITS", "MEAN WAIT", "KILLED PODS"]
    cells = [[*titles, *(f"{unit_of(name).upper()} HOURS" for name in resources)]]
    for row in report.rows:
        seconds = (row.granted_pod_seconds, row.ready_pod_seconds, row.idle_pod_seconds)
        hours = [row.resource_hours.get(name, ResourceHours()).granted for name in resources]
        cells.append(
            [
                *(row.group[name] or "-" for name in by),
                *(f"{value / 3600:.2f}" for value in seconds),
                str(row.waits),
                f"{row.wait_seconds / row.waits:.0f}s" if row.waits else "-",
                str(row.killed_pods),
                *(f"{value:.2f}" for value in hours),
            ]
        )
    return cells


def unit_of(resource: str) -> str:
    """The name of what its hours are of: `cpu`, `memory_gib`."""
    return f"{resource}_gib" if is_bytes(resource) else resource


def time_text(moment_ms: int) -> str:
    """A moment, RFC 3339."""
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _resources(report: UsageReport) -> list[str]:
    return sorted({name for row in report.rows for name in row.resource_hours})
