"""Reads from a ledger which slices held quota at a moment, and which waited. Needs the extra `ledger`."""

from typing import Any

import msgspec
import sqlalchemy as sql

from slicebus.cli.ledger.database import check, one_moment, open_engine
from slicebus.cli.ledger.ledger_slices import HeldPods, LedgerSlice
from slicebus.cli.ledger.options import LEDGER_OPTION
from slicebus.cli.ledger.spans import first_of
from slicebus.cli.ledger.store import read_position
from slicebus.cli.ledger.tables import accounts, grants, jobs, kills, slices, unknown_spans, waits
from slicebus.cli.past.moments import OPTION, local_ms
from slicebus.proto.errors import ConfigurationError
from slicebus.slices.api import api_names


def read_moment(address: str, at_ms: int, *, option: str = OPTION) -> tuple[LedgerSlice, ...]:
    """What the ledger knows of a moment. Raises ConfigurationError, which names the option, for one that it does not
    know, and the errors of `database_errors`."""
    engine = open_engine(address, option=LEDGER_OPTION)
    check(engine, option=LEDGER_OPTION)
    with one_moment(engine) as connection:
        _check_known(connection, at_ms, f"{option} {local_ms(at_ms)}")
        return tuple(_slices(connection, at_ms).values())


def _check_known(connection: sql.Connection, at_ms: int, asked: str) -> None:
    """Raise ConfigurationError, with the span that is known, for a moment of which the ledger cannot tell. `asked` is
    the moment as it was asked for."""
    where = read_position(connection)
    began_ms = first_of(connection)
    if where.known_ms is None or began_ms is None:
        raise ConfigurationError(f"{asked}: the ledger is empty")
    # A row that goes on may be older than the details that are kept.
    first_ms = max(began_ms, where.details_ms or 0)
    if not first_ms <= at_ms <= where.known_ms:
        raise ConfigurationError(
            f"{asked}: the ledger knows each job from {local_ms(first_ms, later=True)} to {local_ms(where.known_ms)}"
        )
    within = (unknown_spans.c.since_ms <= at_ms) & (unknown_spans.c.until_ms > at_ms)
    gap = connection.execute(sql.select(unknown_spans).where(within)).first()
    if gap is not None:
        raise ConfigurationError(
            f"{asked}: the ledger does not know what was from {local_ms(gap.since_ms)} to "
            f"{local_ms(gap.until_ms)}: {gap.reason}"
        )


def _slices(connection: sql.Connection, at_ms: int) -> dict[int, LedgerSlice]:
    """By the number of the slice."""
    found = dict[int, LedgerSlice]()
    for row in connection.execute(_open_at(grants, at_ms)):
        requests = msgspec.json.decode(row.requests, type=dict[str, float])
        _of(found, row).held.append(
            HeldPods(
                pod_set=row.pod_set,
                pods=row.pods,
                ready=row.ready,
                queue=row.queue,
                cluster=row.cluster,
                flavor=row.flavor,
                requests=requests,
            )
        )
    for row in connection.execute(_open_at(waits, at_ms)):
        slice = _of(found, row)
        slice.waits, slice.queue, slice.reason, slice.message = True, row.queue, row.reason, row.message
    waited = dict[int, int]()
    for table in (grants, waits):
        for number, first_ms, last_ms in connection.execute(_begun(table, at_ms)):
            found[number].since_ms = min(found[number].since_ms, first_ms)
            if table is waits:
                waited[number] = last_ms
    for number, lost_ms in connection.execute(_lost(at_ms)):
        # An evicted slice waits again once its pods are gone.
        found[number].evicted = bool(found[number].held) and waited.get(number, 0) < lost_ms
    return found


def _of(found: dict[int, LedgerSlice], row: sql.Row[Any]) -> LedgerSlice:
    if row.slice_id not in found:
        is_job = bool(row.job_name)
        job = (row.kind or "Workload", row.namespace, row.job_name) if is_job else ("Workload", row.namespace, row.name)
        found[row.slice_id] = LedgerSlice(job=job, since_ms=row.since_ms)
    return found[row.slice_id]


def _is_open(table: sql.Table, at_ms: int) -> sql.ColumnElement[bool]:
    return (table.c.since_ms <= at_ms) & (table.c.until_ms > at_ms)


def _open_at(table: sql.Table, at_ms: int) -> sql.Select[Any]:
    """The rows of a moment, with their slice, job and account."""
    is_its = (jobs.c.uid == slices.c.job_uid) | ((slices.c.job_uid == "") & (jobs.c.uid == slices.c.uid))
    account = (accounts.c.queue, accounts.c.cluster, accounts.c.flavor, accounts.c.requests)
    return (
        sql.select(table, slices.c.namespace, slices.c.name, jobs.c.kind, jobs.c.name.label("job_name"), *account)
        .join(slices, slices.c.id == table.c.slice_id)
        .join(jobs, is_its)
        .join(accounts, accounts.c.id == table.c.account_id)
        .where(_is_open(table, at_ms))
    )


def _there(at_ms: int) -> sql.ScalarSelect[Any]:
    """The numbers of the slices of a moment."""
    parts = [sql.select(table.c.slice_id).where(_is_open(table, at_ms)) for table in (grants, waits)]
    return sql.union(*parts).scalar_subquery()


def _begun(table: sql.Table, at_ms: int) -> sql.Select[Any]:
    """When the first and the last row of each slice of a moment began."""
    return (
        sql.select(table.c.slice_id, sql.func.min(table.c.since_ms), sql.func.max(table.c.since_ms))
        .where(table.c.slice_id.in_(_there(at_ms)), table.c.since_ms <= at_ms)
        .group_by(table.c.slice_id)
    )


def _lost(at_ms: int) -> sql.Select[Any]:
    """When each slice of a moment last lost all its quota."""
    is_whole = kills.c.reason != api_names.RECLAIMED
    return (
        sql.select(kills.c.slice_id, sql.func.max(kills.c.at_ms))
        .where(kills.c.slice_id.in_(_there(at_ms)), kills.c.at_ms <= at_ms, is_whole)
        .group_by(kills.c.slice_id)
    )
