"""Queues as rows of `slicebus queues`, by the status that the manager, or a Kueue beside it, has written."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from slicebus.cli.cluster.listing import Column
from slicebus.kube.resources import CLUSTERQUEUES, LOCALQUEUES
from slicebus.proto.messages import Manifest
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.quantities import amount, format_amount

_BAR = 10
"""The characters of a bar."""


class QueueUse(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of one flavor in a queue; amounts as Kubernetes quantities."""

    flavor: str
    resource: str
    nominal: str
    used: str
    borrowed: str
    """What it uses beyond its own quota."""
    borrowing_limit: str
    """Empty for none."""
    lending_limit: str
    share: float | None
    """Used of nominal; null where that is nothing."""


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A ClusterQueue, or a LocalQueue with its namespace."""

    namespace: str
    """Empty for a ClusterQueue."""
    name: str
    cohort: str
    cluster_queue: str
    """That of a LocalQueue."""
    pending: int
    admitted: int
    stop_policy: str
    """`None`, `Hold` or `HoldAndDrain`."""
    inactive: str
    """Why it admits nothing; empty where it does."""
    use: tuple[QueueUse, ...]

    @property
    def resource_name(self) -> str:
        """Its name for kubectl."""
        resource = LOCALQUEUES if self.namespace else CLUSTERQUEUES
        return f"{resource.kind.lower()}.{resource.group}/{self.name}"

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @classmethod
    def of(cls, manifest: Manifest) -> "QueueRow":
        """The row of a ClusterQueue or a LocalQueue."""
        metadata, spec, status = manifest["metadata"], manifest.get("spec", {}), manifest.get("status", {})
        return cls(
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            cohort=spec.get("cohortName", ""),
            cluster_queue=spec.get("clusterQueue", ""),
            pending=status.get("pendingWorkloads", 0),
            admitted=status.get("admittedWorkloads", 0),
            stop_policy=spec.get("stopPolicy") or "None",
            inactive=next(_inactive(manifest), ""),
            use=tuple(_uses(spec, status)),
        )


class QueueLine(msgspec.Struct, frozen=True):
    """A line of the table: a queue has one for each resource of each flavor."""

    queue: QueueRow
    use: QueueUse | None

    @property
    def resource_name(self) -> str:
        """That of its queue."""
        return self.queue.resource_name

    @property
    def stopped(self) -> str:
        """The stop policy, or why the queue admits nothing without one."""
        return self.queue.stop_policy if self.queue.stop_policy != "None" else self.queue.inactive or "-"


def lines(rows: Iterable[QueueRow]) -> list[QueueLine]:
    """The lines of these queues."""
    return [QueueLine(row, use) for row in rows for use in row.use or (None,)]


def bar(share: float | None) -> str:
    """`██████░░░░ 60%`; what is borrowed shows only in the number."""
    if share is None:
        return "-"
    full = min(_BAR, round(share * _BAR))
    return f"{'█' * full}{'░' * (_BAR - full)} {share:.0%}"


def _of_use(title: str, field: str, *, is_wide: bool = False) -> Column[QueueLine]:
    return Column[QueueLine](title, lambda line: getattr(line.use, field, "") or "-", is_wide=is_wide)


_USE = (
    _of_use("FLAVOR", "flavor"),
    _of_use("RESOURCE", "resource"),
)
_COUNTS = (
    Column[QueueLine]("PENDING", lambda line: str(line.queue.pending)),
    Column[QueueLine]("ADMITTED", lambda line: str(line.queue.admitted)),
    Column[QueueLine]("STOPPED", lambda line: line.stopped),
)
COLUMNS = (
    Column[QueueLine]("CLUSTERQUEUE", lambda line: line.queue.name),
    Column[QueueLine]("COHORT", lambda line: line.queue.cohort or "-"),
    *_USE,
    _of_use("NOMINAL", "nominal"),
    _of_use("USED", "used"),
    _of_use("BORROWED", "borrowed"),
    _of_use("MAY-BORROW", "borrowing_limit", is_wide=True),
    _of_use("MAY-LEND", "lending_limit", is_wide=True),
    Column[QueueLine]("BAR", lambda line: bar(line.use.share if line.use else None)),
    *_COUNTS,
)
LOCAL_COLUMNS = (
    Column[QueueLine]("LOCALQUEUE", lambda line: line.queue.name),
    Column[QueueLine]("CLUSTERQUEUE", lambda line: line.queue.cluster_queue or "-"),
    *_USE,
    _of_use("USED", "used"),
    *_COUNTS,
)
NAMESPACE = Column[QueueLine]("NAMESPACE", lambda line: line.queue.namespace)


def in_order(rows: Iterable[QueueRow]) -> list[QueueRow]:
    """Rows as kubectl sorts objects."""
    return sorted(rows, key=lambda row: (row.namespace, row.name))


def _uses(spec: Manifest, status: Manifest) -> Iterator[QueueUse]:
    """What is used, in the order of the quota; what has no quota any more comes last."""
    quotas = {
        (flavor["name"], quota["name"]): quota
        for group in spec.get("resourceGroups") or ()
        for flavor in group["flavors"]
        for quota in flavor["resources"]
    }
    used = {
        (flavor["name"], entry["name"]): entry
        for flavor in status.get("flavorsUsage") or ()
        for entry in flavor.get("resources") or ()
    }
    for flavor, resource in {**quotas, **used}:
        quota, use = quotas.get((flavor, resource), {}), used.get((flavor, resource), {})
        nominal, total = _amount(resource, quota.get("nominalQuota")), _amount(resource, use.get("total"))
        yield QueueUse(
            flavor=flavor,
            resource=resource,
            nominal=_text(resource, nominal),
            used=_text(resource, total or 0),
            borrowed=_text(resource, _amount(resource, use.get("borrowed")) or 0),
            borrowing_limit=_text(resource, _amount(resource, quota.get("borrowingLimit"))),
            lending_limit=_text(resource, _amount(resource, quota.get("lendingLimit"))),
            share=(total or 0) / nominal if nominal else None,
        )


def _amount(resource: str, quantity: Any) -> int | None:
    """The amount of a quantity; None for none, and for what is no quantity: the queue says that itself."""
    try:
        return amount(resource, quantity) if quantity is not None else None
    except ValueError:
        return None


def _text(resource: str, value: int | None) -> str:
    return format_amount(resource, value) if value is not None else ""


def _inactive(manifest: Manifest) -> Iterator[str]:
    for condition in conditions_of(manifest):
        if condition["type"] == "Active" and condition["status"] != "True":
            yield f"{condition.get('reason', '')}: {condition.get('message', '')}"
