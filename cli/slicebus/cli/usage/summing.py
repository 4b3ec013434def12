"""Sums what a ledger has of a span, by what people ask for. Needs the extra `ledger`."""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sql

from slicebus.cli.ledger.database import one_moment
from slicebus.cli.ledger.spans import DAY_MS, AccountSums, SumsByAccount, day_of, detailed, first_of, of_days, together
from slicebus.cli.ledger.store import ReadPosition, read_position
from slicebus.cli.ledger.tables import accounts, days, unknown_spans
from slicebus.cli.usage.rows import NotKnown, UsageReport, UsageRow, usage_row

_LONG_MS = 7 * DAY_MS
"""Of a span so long whole days count."""


def sum_up(engine: sql.Engine, since_ms: int, until_ms: int, by: Sequence[str]) -> UsageReport:
    """The use in a span, by fields of the account. Raises the errors of `database_errors`.

    Days that are rolled up are read as such, and the rest from its details. Where the details are gone, whole days
    count; so they do at the ends of a week or more, where the details of all that came later would have to be read.
    """
    with one_moment(engine) as connection:
        where = read_position(connection)
        if where.known_ms is None:
            return UsageReport(since_ms, since_ms, None, [], [])
        until_ms = min(until_ms, where.known_ms)
        whole_ms = max(where.details_ms or 0, (where.rolled_ms or 0) if until_ms - since_ms >= _LONG_MS else 0)
        until_ms = max(since_ms, _end_of(until_ms, whole_ms))
        since_ms = day_of(since_ms) if since_ms < whole_ms else since_ms
        sums = together(_parts(connection, since_ms, until_ms, where))
        began_ms = _began(connection, has_all_details=where.details_ms is None)
        return UsageReport(
            max(since_ms, began_ms) if began_ms is not None else since_ms,
            until_ms,
            began_ms,
            _rows(connection, sums, by),
            _not_known(connection, since_ms, until_ms),
        )


def _end_of(until_ms: int, whole_ms: int) -> int:
    """The end of a span, or that of its day where only whole days count."""
    return day_of(until_ms + DAY_MS - 1) if until_ms < whole_ms else until_ms


def _parts(connection: sql.Connection, since_ms: int, until_ms: int, where: ReadPosition) -> list[SumsByAccount]:
    """The sums of the days that are rolled up, and of what is before and after them."""
    known_ms = where.known_ms or 0
    first_ms = day_of(since_ms + DAY_MS - 1)
    last_ms = day_of(min(until_ms, where.rolled_ms or 0))
    if first_ms >= last_ms:
        return [detailed(connection, since_ms, until_ms, known_ms=known_ms)]
    parts = [of_days(connection, first_ms, last_ms)]
    if since_ms < first_ms:
        parts.append(detailed(connection, since_ms, first_ms, known_ms=known_ms))
    if last_ms < until_ms:
        parts.append(detailed(connection, last_ms, until_ms, known_ms=known_ms))
    return parts


def _began(connection: sql.Connection, *, has_all_details: bool) -> int | None:
    """Since when the ledger has anything: the first grant or wait, or the first day once its details are gone."""
    first_ms: int | None = connection.execute(sql.select(sql.func.min(days.c.day_ms))).scalar()
    return first_of(connection) if has_all_details or first_ms is None else first_ms


def _rows(connection: sql.Connection, sums: SumsByAccount, by: Sequence[str]) -> list[UsageRow]:
    grouped: dict[tuple[str, ...], dict[str, AccountSums]] = {}
    for account in connection.execute(sql.select(accounts)).mappings():
        if account["id"] in sums:
            group = grouped.setdefault(tuple(account[name] for name in by), {})
            group.setdefault(account["requests"], AccountSums()).add(sums[account["id"]])
    return [
        usage_row(dict(zip(by, key, strict=True)), ((msgspec.json.decode(text), one) for text, one in found.items()))
        for key, found in sorted(grouped.items())
    ]


def _not_known(connection: sql.Connection, since_ms: int, until_ms: int) -> list[NotKnown]:
    overlaps = (unknown_spans.c.since_ms < until_ms) & (unknown_spans.c.until_ms > since_ms)
    found = connection.execute(sql.select(unknown_spans).where(overlaps).order_by(unknown_spans.c.since_ms))
    return [NotKnown(row.since_ms, row.until_ms, row.reason, row.pod_ms / 1000) for row in found]
