"""`slicebus queues`: quota and who waits for it, and the commands that stop a queue and resume it."""

from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import run, run_led
from slicebus.cli.cluster.filters import unknown
from slicebus.cli.cluster.options import (
    ClusterAccess,
    ManagerPlace,
    Options,
    OutputFormat,
    Scope,
    Watch,
    with_options,
)
from slicebus.cli.consent import Consent, DryRun
from slicebus.cli.past.options import PastMoment
from slicebus.proto.errors import ConfigurationError, ForbiddenError, NotFoundError

if TYPE_CHECKING:
    from slicebus.cli.cluster.reading import Reading
    from slicebus.cli.past.ledger_rows import LedgerReading
    from slicebus.cli.queues.rows import QueueRow
    from slicebus.kube.client import KubeClient
    from slicebus.kube.resources import Resource
    from slicebus.manager.state.store import ManagerStore

queues = typer.Typer(invoke_without_command=True)

Queue = Annotated[str, typer.Argument(metavar="NAME", help="A ClusterQueue; with -n a LocalQueue.")]


class QueuePlace(Options, frozen=True, kw_only=True):
    """Where a queue is that is named."""

    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", metavar="NAME", help="The namespace of a LocalQueue; else a ClusterQueue."),
    ] = None


@queues.callback()
@with_options
def _queues(
    called: typer.Context,
    *,
    scope: Scope,
    access: ClusterAccess,
    managers: ManagerPlace,
    format: OutputFormat,
    watch: Watch,
    past: PastMoment,
) -> None:
    """Show quota and who waits for it, or stop and resume a queue.

    Without a command it lists the ClusterQueues: for each resource of each flavor the quota, what is used and what of
    that is borrowed; how many workloads wait and are admitted; and whether it is stopped. With -n or -A, and for who
    may not see ClusterQueues, it lists LocalQueues. With --at it shows a moment of the past, and asks no cluster; from
    a ledger, what that knows. Exit status 1 where no manager works: what is shown is then as old as its last write.
    """
    at = past.asked(watch)
    if called.invoked_subcommand is None and at is not None:
        _list_at(past, at, scope, format)
    elif called.invoked_subcommand is None:
        run_led(access, managers, lambda client, _: _list(client, scope, format, watch))
    elif at or (scope, access, format, watch) != (Scope(), ClusterAccess(), OutputFormat(), Watch()):
        raise typer.BadParameter(f"options come after {called.invoked_subcommand}")


@queues.command()
@with_options
def stop(
    name: Queue,
    drain: Annotated[
        bool, typer.Option("--drain", help="Take the quota of those that run, too: their pods end.")
    ] = False,
    *,
    consent: Consent,
    place: QueuePlace,
    access: ClusterAccess,
) -> None:
    """Let a queue admit nothing more. What runs goes on, unless it is drained.

    It sets the stopPolicy of a ClusterQueue, or with -n of a LocalQueue, to Hold, and with --drain to HoldAndDrain.
    With --drain it asks first, and without a terminal it needs --yes.
    """
    policy = "HoldAndDrain" if drain else "Hold"
    row = run(access, lambda client: _found(client, name, place.namespace))
    if drain:
        consent.ask(f"this stops the {row.admitted} workloads that {row.resource_name} has admitted")
    _set_policy(access, row, policy, dry_run=consent.dry_run)


@queues.command()
@with_options
def resume(name: Queue, dry_run: DryRun = False, *, place: QueuePlace, access: ClusterAccess) -> None:
    """Let a queue that was stopped admit again."""
    row = run(access, lambda client: _found(client, name, place.namespace))
    _set_policy(access, row, "None", dry_run=dry_run)


def _set_policy(access: ClusterAccess, row: "QueueRow", policy: str, *, dry_run: bool) -> None:
    async def patch(client: "KubeClient") -> None:
        from slicebus.kube.client import MergePatch

        body = MergePatch({"spec": {"stopPolicy": policy}})
        await client.patch(_resource(row.namespace), row.name, row.namespace or None, body)

    if row.stop_policy == policy:
        screen.say(f"{row.resource_name} has stopPolicy {policy} already")
        return
    if not dry_run:
        run(access, patch)
    would = "would have" if dry_run else "has"
    screen.say(f"{row.resource_name} {would} stopPolicy {policy}, after {row.stop_policy}")


def _resource(namespace: str | None) -> "Resource":
    from slicebus.kube.resources import CLUSTERQUEUES, LOCALQUEUES

    return LOCALQUEUES if namespace else CLUSTERQUEUES


async def _found(client: "KubeClient", name: str, namespace: str | None) -> "QueueRow":
    """The row of a queue. Raises NotFoundError with the nearest name."""
    from slicebus.cli.queues.rows import QueueRow

    resource = _resource(namespace)
    try:
        return QueueRow.of(await client.get(resource, name, namespace))
    except NotFoundError:
        known = (await client.list(resource, namespace=namespace)).items
        names = [manifest["metadata"]["name"] for manifest in known]
        raise NotFoundError(unknown(name, resource.kind, names)) from None


async def _list(client: "KubeClient", scope: Scope, format: OutputFormat, watch: Watch) -> None:
    from slicebus.cli.cluster.showing import show
    from slicebus.cli.queues.listing import QueueListing

    reading, is_local = await _read(client, scope)
    listing = QueueListing(scope, format, is_local=is_local)
    await show(
        client,
        reading,
        lambda: {row.key: row for row in _rows(reading.store, is_local=is_local)},
        everything=listing.show,
        changes=listing.show_changed,
        watch=watch.watch,
    )


def _list_at(past: PastMoment, at: str, scope: Scope, format: OutputFormat) -> None:
    """Raises ConfigurationError beside a Kueue: the manager does not watch its queues there."""
    from slicebus.cli.past.ledger_rows import LedgerReading
    from slicebus.cli.past.reading import read_past, require_queues
    from slicebus.cli.queues.listing import QueueListing

    reading, is_local = read_past(past, at, scope.within(None)), scope.all_namespaces or scope.namespace is not None
    if isinstance(reading, LedgerReading):
        _list_of_ledger(reading, format, is_local=is_local)
        return
    require_queues(reading.store)
    listing = QueueListing(scope, format, is_local=is_local, at=reading.at)
    with reading.shown():
        listing.show(_rows(reading.store, is_local=is_local))


def _list_of_ledger(reading: "LedgerReading", format: OutputFormat, *, is_local: bool) -> None:
    """Raises ConfigurationError for LocalQueues."""
    from slicebus.cli.cluster.listing import Listing
    from slicebus.cli.past.ledger_rows import (
        QUEUE_COLUMNS,
        QUEUES_NOT_KNOWN,
        LedgerQueueLine,
        LedgerQueueRow,
        queue_lines,
    )

    if is_local:
        raise ConfigurationError("the ledger does not know LocalQueues; without -n and -A these are the ClusterQueues")
    rows = reading.queues()
    screen.warn(QUEUES_NOT_KNOWN)
    if format.output.is_table:
        Listing[LedgerQueueLine](QUEUE_COLUMNS, format, at=reading.at).show(
            queue_lines(rows), nothing="no ClusterQueues"
        )
    else:
        Listing[LedgerQueueRow]((), format, at=reading.at).show(rows)


async def _read(client: "KubeClient", scope: Scope) -> "tuple[Reading, bool]":
    """The queues, and whether they are LocalQueues."""
    from slicebus.cli.cluster.reading import read
    from slicebus.kube.resources import CLUSTERQUEUES, LOCALQUEUES

    namespace = scope.within("")
    if not (scope.all_namespaces or scope.namespace):
        try:
            return await read(client, only=[CLUSTERQUEUES]), False
        except ForbiddenError:
            namespace = client.namespace
            screen.warn(f"you may not see ClusterQueues; these are the LocalQueues of namespace {namespace}")
    return await read(client, namespace=namespace, only=[LOCALQUEUES]), True


def _rows(store: "ManagerStore", *, is_local: bool) -> "list[QueueRow]":
    from slicebus.cli.queues.rows import QueueRow, in_order

    cache = store.local_queues if is_local else store.cluster_queues
    return in_order(map(QueueRow.of, cache.all()))
