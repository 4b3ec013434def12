"""`slicebus jobs`: every job of a namespace, or of all, with its state."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import namespace_of, run_led
from slicebus.cli.cluster.filters import check_known, option_of
from slicebus.cli.cluster.listing import Listing
from slicebus.cli.cluster.options import ClusterAccess, ManagerPlace, OutputFormat, Scope, Watch, with_options
from slicebus.cli.past.options import PastMoment
from slicebus.manager.state.shown_states import ShownState

if TYPE_CHECKING:
    from slicebus.cli.jobs.rows import JobRow
    from slicebus.cli.leaders import Leaders
    from slicebus.cli.past.ledger_rows import LedgerJobRow, LedgerReading
    from slicebus.kube.client import KubeClient
    from slicebus.manager.decide.problems import Sight
    from slicebus.manager.state.quota_trees import Quotas
    from slicebus.manager.state.store import ManagerStore

Row = TypeVar("Row", bound="JobRow | LedgerJobRow")


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs; None is no condition."""

    state: ShownState | None = None
    queue: str | None = None
    cluster: str | None = None
    reason: str | None = None
    """The first word of why a job is not as it wants to be, in any case."""

    def takes(self, row: "JobRow | LedgerJobRow") -> bool:
        """Whether a job is wanted."""
        return (
            self.state in (None, row.state)
            and (self.queue is None or self.queue in (row.queue, row.cluster_queue))
            and self.cluster in (None, row.cluster)
            and (self.reason is None or self.reason.lower() == row.reason.lower())
        )


@with_options
def jobs(
    state: Annotated[
        ShownState | None,
        option_of(ShownState, "state", help=f"Only jobs in this state: {', '.join(ShownState)}."),
    ] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only jobs of this LocalQueue or ClusterQueue.")
    ] = None,
    cluster: Annotated[str | None, typer.Option(metavar="NAME", help="Only jobs of this worker cluster.")] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="WORD", help="Only jobs with this first word under WHY: PodsNotRunning.")
    ] = None,
    *,
    scope: Scope,
    access: ClusterAccess,
    managers: ManagerPlace,
    format: OutputFormat,
    watch: Watch,
    past: PastMoment,
) -> None:
    """List jobs: state, queue, cluster, size, and why one waits.

    The size is that which the job wants, what it is granted, and the pods that are ready. With the rights of one
    namespace it says what it leaves out. With --at it shows a moment of the past, and asks no cluster; from a ledger,
    what that knows. Exit status 1 where no manager works: what is shown is then as old as its last write.
    """
    wanted = JobFilter(state=state, queue=queue, cluster=cluster, reason=reason)
    if (at := past.asked(watch)) is not None:
        _jobs_at(past, at, scope.within(namespace_of(access)), wanted, format)
        return
    run_led(access, managers, lambda client, leaders: _jobs(client, scope, wanted, format, watch, leaders))


async def _jobs(
    client: "KubeClient", scope: Scope, wanted: JobFilter, format: OutputFormat, watch: Watch, leaders: "Leaders"
) -> None:
    from slicebus.cli.cluster.reading import read
    from slicebus.cli.cluster.showing import show
    from slicebus.cli.jobs.rows import COLUMNS, NAMESPACE

    namespace = scope.within(client.namespace)
    reading = await read(client, namespace=namespace)
    listing = Listing([*([NAMESPACE] if namespace is None else []), *COLUMNS], format)
    # A manager may begin to work while somebody watches.
    sight = reading.sight if watch.watch else leaders.seen(reading.sight)
    is_checked = False

    def rows() -> "Mapping[Hashable, JobRow]":
        nonlocal is_checked
        found = _rows(reading.store, sight, wanted, checks=not is_checked)
        # A queue that is deleted while somebody watches may come back.
        is_checked = True
        return {row.key: row for row in found}

    await show(
        client,
        reading,
        rows,
        everything=lambda rows: listing.show(rows, nothing=_nothing(namespace)),
        changes=listing.show_changed,
        watch=watch.watch,
    )


def _jobs_at(past: PastMoment, at: str, namespace: str | None, wanted: JobFilter, format: OutputFormat) -> None:
    from slicebus.cli.jobs.rows import COLUMNS, NAMESPACE
    from slicebus.cli.past.ledger_rows import LedgerReading
    from slicebus.cli.past.reading import read_past
    from slicebus.manager.decide.problems import ALL

    reading = read_past(past, at, namespace)
    if isinstance(reading, LedgerReading):
        _jobs_of_ledger(reading, namespace, wanted, format)
        return
    listing = Listing([*([NAMESPACE] if namespace is None else []), *COLUMNS], format, at=reading.at)
    with reading.shown():
        listing.show(_rows(reading.store, reading.leaders.seen(ALL), wanted), nothing=_nothing(namespace))


def _jobs_of_ledger(reading: "LedgerReading", namespace: str | None, wanted: JobFilter, format: OutputFormat) -> None:
    from slicebus.cli.past.ledger_rows import JOB_COLUMNS, JOB_NAMESPACE, JOBS_NOT_KNOWN
    from slicebus.cli.past.reading import at_moment

    rows = filtered(reading.jobs(namespace), wanted)
    screen.warn(JOBS_NOT_KNOWN)
    listing = Listing([*([JOB_NAMESPACE] if namespace is None else []), *JOB_COLUMNS], format, at=reading.at)
    with at_moment(reading.at):
        listing.show(rows, nothing=_nothing(namespace))


def _nothing(namespace: str | None) -> str:
    return f"no jobs in namespace {namespace}; -A for all" if namespace else "no jobs"


def _rows(store: "ManagerStore", sight: "Sight", wanted: JobFilter, *, checks: bool = True) -> "Sequence[JobRow]":
    """The wanted rows. With `checks` it raises ConfigurationError for a filter that names a queue or a cluster that is
    not there, and where there are only copies of an agent."""
    from slicebus.cli.cluster.finding import copies_among, job_refs, refusal
    from slicebus.cli.jobs.rows import JobRow, in_order, shown_refs

    refs = list(shown_refs(store))
    if checks and not refs and (copies := copies_among(store, job_refs(store))):
        raise refusal(copies[0])
    rows = in_order(JobRow.of(store, ref, sight) for ref in refs)
    if not checks:
        return [row for row in rows if wanted.takes(row)]
    return filtered(rows, wanted, queues=queue_names(store.quotas), clusters=cluster_names(store.quotas))


def filtered(
    rows: "Sequence[Row]", wanted: JobFilter, *, queues: Iterable[str] = (), clusters: Iterable[str] = ()
) -> "Sequence[Row]":
    """The wanted rows. Raises ConfigurationError for a filter that names a queue or a cluster that neither is there nor
    has a job."""
    check_known(wanted.queue, "queue", {*queues, *_values(rows, lambda row: row.queue)})
    check_known(wanted.cluster, "worker cluster", {*clusters, *_values(rows, lambda row: row.cluster)})
    return [row for row in rows if wanted.takes(row)]


def queue_names(quotas: "Quotas") -> set[str]:
    """Those of the LocalQueues and ClusterQueues."""
    return {name for _, name in quotas.local_queues} | set(quotas.cluster_queues)


def cluster_names(quotas: "Quotas") -> set[str]:
    """Those of the worker clusters."""
    return {cluster.name for cluster in quotas.worker_clusters}


def _values(rows: "Sequence[Row]", value: "Callable[[Row], str]") -> set[str]:
    return {value(row) for row in rows} - {""}
