"""The rows of `slicebus jobs --at` and `queues --at` that a ledger has. It knows less than the journal. Pure."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from slicebus.cli.cluster.listing import Column
from slicebus.cli.durations import age_of
from slicebus.cli.ledger.ledger_slices import HeldPods, LedgerSlice
from slicebus.kube.resources import CLUSTERQUEUES, JOB_RESOURCES
from slicebus.manager.state.shown_states import ShownState
from slicebus.proto.messages import Counts
from slicebus.slices.api.quantities import amount, format_amount

JOBS_NOT_KNOWN = (
    "from the ledger, which knows the jobs that held quota or waited for some, and not: their LocalQueues, the sizes "
    "that they wanted, whether their clusters were silent, and jobs that were refused, suspended, unmanaged, or had "
    "ended. The age is that of the first record"
)
QUEUES_NOT_KNOWN = (
    "from the ledger, which knows what was used, and who held quota or waited for some, and not: the quota, cohorts, "
    "LocalQueues, and whether a queue was stopped"
)


class LedgerJobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as far as a ledger knows it."""

    namespace: str
    name: str
    kind: str
    state: ShownState
    cluster_queue: str
    cluster: str
    granted: Counts
    ready: int
    since: str
    """Since when the ledger knows it, RFC 3339."""
    reason: str
    message: str

    @property
    def resource_name(self) -> str:
        """Its name for kubectl."""
        resource = JOB_RESOURCES.get(self.kind)
        return f"{'.'.join(filter(None, (self.kind.lower(), resource.group if resource else '')))}/{self.name}"

    @property
    def queue(self) -> str:
        """Its ClusterQueue, by which a filter finds it."""
        return self.cluster_queue

    @property
    def why(self) -> str:
        """Reason and message."""
        return ": ".join(filter(None, (self.reason, self.message)))


class LedgerQueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A ClusterQueue that somebody held quota of, or waited for."""

    name: str
    pending: int
    admitted: int
    """Slices."""
    use: tuple["LedgerUse", ...]

    @property
    def resource_name(self) -> str:
        """Its name for kubectl."""
        return f"{CLUSTERQUEUES.kind.lower()}.{CLUSTERQUEUES.group}/{self.name}"


class LedgerUse(msgspec.Struct, frozen=True, kw_only=True):
    """One resource in a queue."""

    flavor: str
    """Several, joined by `+`, where the pods had several."""
    resource: str
    used: str
    """As a Kubernetes quantity."""


class LedgerQueueLine(msgspec.Struct, frozen=True):
    """A line of the table: a queue has one for each resource of each flavor."""

    queue: LedgerQueueRow
    use: LedgerUse | None

    @property
    def resource_name(self) -> str:
        """That of its queue."""
        return self.queue.resource_name


JOB_COLUMNS = (
    Column[LedgerJobRow]("NAME", lambda row: row.name),
    Column[LedgerJobRow]("KIND", lambda row: row.kind),
    Column[LedgerJobRow]("STATE", lambda row: row.state),
    Column[LedgerJobRow]("CLUSTERQUEUE", lambda row: row.cluster_queue or "-"),
    Column[LedgerJobRow]("CLUSTER", lambda row: row.cluster or "-"),
    Column[LedgerJobRow]("GRANTED", lambda row: str(sum(row.granted.values()))),
    Column[LedgerJobRow]("READY", lambda row: str(row.ready)),
    Column[LedgerJobRow]("AGE", lambda row: age_of(row.since)),
    Column[LedgerJobRow]("WHY", lambda row: row.why),
)
JOB_NAMESPACE = Column[LedgerJobRow]("NAMESPACE", lambda row: row.namespace)
QUEUE_COLUMNS = (
    Column[LedgerQueueLine]("CLUSTERQUEUE", lambda line: line.queue.name or "-"),
    Column[LedgerQueueLine]("FLAVOR", lambda line: line.use.flavor if line.use else "-"),
    Column[LedgerQueueLine]("RESOURCE", lambda line: line.use.resource if line.use else "-"),
    Column[LedgerQueueLine]("USED", lambda line: line.use.used if line.use else "-"),
    Column[LedgerQueueLine]("PENDING", lambda line: str(line.queue.pending)),
    Column[LedgerQueueLine]("ADMITTED", lambda line: str(line.queue.admitted)),
)


class LedgerReading(msgspec.Struct, frozen=True):
    """What a ledger knows of a moment."""

    slices: tuple[LedgerSlice, ...]
    at: datetime

    def jobs(self, namespace: str | None) -> list[LedgerJobRow]:
        """The rows of a namespace, or of all, as kubectl sorts objects."""
        by_job = dict[tuple[str, str, str], list[LedgerSlice]]()
        for slice in self.slices:
            if namespace in (None, slice.job[1]):
                by_job.setdefault(slice.job, []).append(slice)
        rows = [_job(job, slices) for job, slices in by_job.items()]
        return sorted(rows, key=lambda row: (row.namespace, row.name, row.kind))

    def queues(self) -> list[LedgerQueueRow]:
        """The rows of the ClusterQueues."""
        names = {held.queue for slice in self.slices for held in slice.held}
        names |= {slice.queue for slice in self.slices if slice.waits}
        return [self._queue(name) for name in sorted(names)]

    def _queue(self, name: str) -> LedgerQueueRow:
        holding = [[held for held in slice.held if held.queue == name] for slice in self.slices]
        return LedgerQueueRow(
            name=name,
            pending=sum(slice.waits and slice.queue == name for slice in self.slices),
            admitted=sum(bool(held) for held in holding),
            use=tuple(_use(held for each in holding for held in each)),
        )


def queue_lines(rows: Iterable[LedgerQueueRow]) -> list[LedgerQueueLine]:
    """The lines of these queues."""
    return [LedgerQueueLine(row, use) for row in rows for use in row.use or (None,)]


def _job(job: tuple[str, str, str], slices: list[LedgerSlice]) -> LedgerJobRow:
    held = [pods for slice in slices for pods in slice.held]
    waiting = next((slice for slice in slices if slice.waits), None)
    state = _state(slices, held, waits=waiting is not None)
    kind, namespace, name = job
    queue = held[0].queue if held else waiting.queue if waiting is not None else ""
    return LedgerJobRow(
        namespace=namespace,
        name=name,
        kind=kind,
        state=state,
        cluster_queue=queue,
        cluster=held[0].cluster if held else "",
        granted=_pods(held) if state is not ShownState.EVICTING else {},
        ready=sum(pods.ready for pods in held),
        since=_text(min(slice.since_ms for slice in slices)),
        reason=waiting.reason if waiting is not None else "",
        message=waiting.message if waiting is not None else "",
    )


def _state(slices: list[LedgerSlice], held: list[HeldPods], *, waits: bool) -> ShownState:
    if any(slice.evicted for slice in slices):
        return ShownState.EVICTING
    if not held:
        return ShownState.PENDING
    if waits:
        return ShownState.RESIZING
    return ShownState.RUNNING if any(pods.ready for pods in held) else ShownState.ADMITTED


def _pods(held: Iterable[HeldPods]) -> dict[str, int]:
    found = dict[str, int]()
    for pods in held:
        found[pods.pod_set] = found.get(pods.pod_set, 0) + pods.pods
    return found


def _use(held: Iterable[HeldPods]) -> Iterator[LedgerUse]:
    total = dict[tuple[str, str], float]()
    for pods in held:
        for resource, one in pods.requests.items():
            key = pods.flavor, resource
            total[key] = total.get(key, 0.0) + pods.pods * one
    for (flavor, resource), used in sorted(total.items()):
        yield LedgerUse(flavor=flavor, resource=resource, used=_quantity(resource, used))


def _quantity(resource: str, used: float) -> str:
    """Of cores, bytes or pieces. What a sum of fractions is off by is less than the last digit."""
    return format_amount(resource, amount(resource, f"{used:.3f}" if resource == "cpu" else round(used)))


def _text(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
