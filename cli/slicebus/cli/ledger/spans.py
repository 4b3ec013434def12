"""Sums what the tables of the ledger have of a span, by account. Pods are multiplied by milliseconds."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec
import sqlalchemy as sql

from slicebus.cli.ledger.tables import OPEN_MS, days, grants, kills, waits

DAY_MS = 86_400_000


class AccountSums(msgspec.Struct):
    """The sums of one account."""

    granted_ms: int = 0
    ready_ms: int = 0
    waited_ms: int = 0
    waits: int = 0
    """How many waits ended with quota."""
    killed: int = 0
    """Pods."""

    def add(self, other: "AccountSums") -> None:
        """Count another one's too."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


SumsByAccount = dict[int, AccountSums]
"""By the number of the account."""


def detailed(connection: sql.Connection, since_ms: int, until_ms: int, *, known_ms: int) -> SumsByAccount:
    """The sums of a span, from the rows of grants, waits and kills. What goes on counts up to where it is known."""
    sums: SumsByAccount = defaultdict(AccountSums)
    until_ms = min(until_ms, known_ms)
    if until_ms <= since_ms:
        return sums
    of_grants = _overlap(grants, since_ms, until_ms)
    for row in connection.execute(
        sql.select(
            grants.c.account_id,
            sql.func.sum(grants.c.pods * of_grants).label("granted"),
            sql.func.sum(grants.c.ready * of_grants).label("ready"),
        )
        .where(grants.c.until_ms > since_ms, grants.c.since_ms < until_ms)
        .group_by(grants.c.account_id)
    ):
        sums[row.account_id].granted_ms += int(row.granted)
        sums[row.account_id].ready_ms += int(row.ready)
    has_ended = waits.c.admitted & (waits.c.until_ms <= until_ms)
    for row in connection.execute(
        sql.select(
            waits.c.account_id,
            sql.func.sum(_overlap(waits, since_ms, until_ms)).label("waited"),
            sql.func.sum(sql.case((has_ended, 1), else_=0)).label("ended"),
        )
        .where(waits.c.until_ms > since_ms, waits.c.since_ms < until_ms)
        .group_by(waits.c.account_id)
    ):
        sums[row.account_id].waited_ms += int(row.waited)
        sums[row.account_id].waits += int(row.ended)
    for kill in connection.execute(
        sql.select(kills.c.account_id, sql.func.sum(kills.c.pods).label("pods"))
        .where(kills.c.at_ms >= since_ms, kills.c.at_ms < until_ms)
        .group_by(kills.c.account_id)
    ):
        sums[kill.account_id].killed += int(kill.pods)
    return sums


def of_days(connection: sql.Connection, since_ms: int, until_ms: int) -> SumsByAccount:
    """The sums of whole days that are rolled up, from the first beginning up to the last, which is not one of them."""
    columns = [sql.func.sum(days.c[name]).label(name) for name in AccountSums.__struct_fields__]
    found = connection.execute(
        sql.select(days.c.account_id, *columns)
        .where(days.c.day_ms >= since_ms, days.c.day_ms < until_ms)
        .group_by(days.c.account_id)
    )
    return {row.account_id: AccountSums(*map(int, row[1:])) for row in found}


def together(parts: Iterable[SumsByAccount]) -> SumsByAccount:
    """The sums of several spans."""
    sums: SumsByAccount = defaultdict(AccountSums)
    for part in parts:
        for account, found in part.items():
            sums[account].add(found)
    return sums


def first_of(connection: sql.Connection) -> int | None:
    """When the first grant or wait began that the details have; None where they have none."""
    firsts = [connection.execute(sql.select(sql.func.min(table.c.since_ms))).scalar() for table in (grants, waits)]
    return min((first for first in firsts if first is not None), default=None)


def day_of(moment_ms: int) -> int:
    """The beginning of its day, in UTC."""
    return moment_ms - moment_ms % DAY_MS


def _overlap(table: sql.Table, since_ms: int, until_ms: int) -> sql.ColumnElement[int]:
    """How long a row lasted within a span. No open row ends in one."""
    assert until_ms < OPEN_MS
    begin = sql.case((table.c.since_ms > since_ms, table.c.since_ms), else_=since_ms)
    end = sql.case((table.c.until_ms < until_ms, table.c.until_ms), else_=until_ms)
    return end - begin
