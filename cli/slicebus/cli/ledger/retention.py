"""Rolls days up, and removes what is older than it is kept. The ledger's one writer does both, between two writes."""

from datetime import timedelta

import msgspec
import sqlalchemy as sql

from slicebus.cli.ledger.database import database_errors, insert
from slicebus.cli.ledger.spans import DAY_MS, AccountSums, day_of, detailed, first_of
from slicebus.cli.ledger.store import ReadPosition, read_position
from slicebus.cli.ledger.tables import (
    days,
    grants,
    jobs,
    kills,
    policies,
    position,
    resizes,
    slices,
    specs,
    templates,
    unknown_spans,
    waits,
)

_SETTLED_MS = 3_600_000
"""A day is rolled up so long after its end: nothing of it comes later."""


class Retention(msgspec.Struct, frozen=True):
    """How long the ledger keeps what."""

    details: timedelta
    """Rows of grants, waits, kills and resizes."""
    days: timedelta
    """The sums of days, and which spans are not known: as long as their details at least, whose sums they are."""


def roll_up(engine: sql.Engine) -> int:
    """Roll up the days that are over, each in a transaction of its own, and return how many. Raises the errors of
    `database_errors`."""
    count = 0
    with database_errors(engine):
        while True:
            with engine.begin() as connection:
                day_ms = _next_day(connection, read_position(connection))
                if day_ms is None:
                    return count
                _roll_up(connection, day_ms)
            count += 1


def prune(engine: sql.Engine, retention: Retention) -> None:
    """Remove what is older than it is kept, but no detail of a day that is not rolled up. Raises the errors of
    `database_errors`."""
    with database_errors(engine), engine.begin() as connection:
        where = read_position(connection)
        if where.known_ms is None or where.rolled_ms is None:
            return
        details_ms = min(where.rolled_ms, day_of(where.known_ms - _milliseconds(retention.details)))
        days_ms = min(details_ms, day_of(where.known_ms - _milliseconds(retention.days)))
        connection.execute(sql.delete(days).where(days.c.day_ms < days_ms))
        connection.execute(sql.delete(unknown_spans).where(unknown_spans.c.until_ms < days_ms))
        if details_ms <= (where.details_ms or 0):
            return
        for table in (grants, waits):
            connection.execute(sql.delete(table).where(table.c.until_ms < details_ms))
        for table in (kills, resizes):
            connection.execute(sql.delete(table).where(table.c.at_ms < details_ms))
        connection.execute(sql.delete(slices).where(slices.c.gone_ms < details_ms))
        has_slices = sql.exists().where(slices.c.job_uid == jobs.c.uid) | sql.exists().where(slices.c.uid == jobs.c.uid)
        connection.execute(sql.delete(jobs).where(~has_slices))
        _prune_asked(connection, details_ms)
        connection.execute(sql.update(position).values(details_ms=details_ms))


def _prune_asked(connection: sql.Connection, details_ms: int) -> None:
    """Remove what nobody of these details asked for, and what was decided by only before."""
    connection.execute(sql.delete(specs).where(~sql.exists().where(slices.c.id == specs.c.slice_id)))
    connection.execute(sql.delete(templates).where(~sql.exists().where(specs.c.template_id == templates.c.id)))
    later = policies.alias()
    is_same = sql.and_(*(later.c[name] == policies.c[name] for name in ("resource", "namespace", "name")))
    superseded = sql.exists().where(is_same, later.c.at_ms > policies.c.at_ms, later.c.at_ms <= details_ms)
    is_over = (policies.c.at_ms <= details_ms) & (superseded | (policies.c.document == ""))
    connection.execute(sql.delete(policies).where(is_over))


def _next_day(connection: sql.Connection, where: ReadPosition) -> int | None:
    """The beginning of the first day that is over and not rolled up."""
    if where.known_ms is None:
        return None
    day_ms = where.rolled_ms
    if day_ms is None:
        first_ms = first_of(connection)
        day_ms = day_of(where.known_ms if first_ms is None else min(first_ms, where.known_ms))
    return day_ms if where.known_ms >= day_ms + DAY_MS + _SETTLED_MS else None


def _roll_up(connection: sql.Connection, day_ms: int) -> None:
    end_ms = day_ms + DAY_MS
    found = detailed(connection, day_ms, end_ms, known_ms=end_ms)
    rows = [{"day_ms": day_ms, "account_id": account, **_fields(sums)} for account, sums in found.items()]
    if rows:
        connection.execute(insert(connection, days).on_conflict_do_nothing(), rows)
    connection.execute(sql.update(position).values(rolled_ms=end_ms))


def _fields(sums: AccountSums) -> dict[str, int]:
    return msgspec.structs.asdict(sums)


def _milliseconds(length: timedelta) -> int:
    return length // timedelta(milliseconds=1)
