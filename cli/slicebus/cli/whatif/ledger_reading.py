"""Reads from a ledger the past that `slicebus whatif` plays. Needs the extra `ledger`."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import sqlalchemy as sql

from slicebus.cli import screen
from slicebus.cli.ledger.database import check, one_moment, open_engine
from slicebus.cli.ledger.options import LEDGER_OPTION
from slicebus.cli.ledger.store import read_position
from slicebus.cli.ledger.tables import (
    ACCOUNT_FIELDS,
    OPEN_MS,
    accounts,
    grants,
    jobs,
    policies,
    slices,
    specs,
    templates,
    unknown_spans,
    waits,
)
from slicebus.cli.past.moments import local_ms
from slicebus.ledger.facts import GrantFact, JobFact, LedgerAccount, PolicyFact, SliceFact, SpecFact, WaitFact
from slicebus.manager.decide.whatif.ledger_past import LedgerFacts, past_of_ledger
from slicebus.manager.decide.whatif.recorded_past import RecordedPast
from slicebus.proto.errors import ConfigurationError, InvalidError


def read_ledger(address: str, since: datetime) -> RecordedPast:
    """The past that a ledger has from then on. Raises ConfigurationError, InvalidError where it has nothing, and the
    errors of `database_errors`."""
    engine, since_ms = open_engine(address, option=LEDGER_OPTION), round(since.timestamp() * 1000)
    check(engine, option=LEDGER_OPTION)
    with one_moment(engine) as connection:
        where = read_position(connection)
        first_ms = connection.execute(sql.select(sql.func.min(policies.c.at_ms))).scalar()
        if where.known_ms is None or first_ms is None:
            raise ConfigurationError(
                f"{LEDGER_OPTION}: it has no queues and sizes to play; `slicebus ledger` of this version writes them"
            )
        began_ms = max(first_ms, where.details_ms or 0)
        if since_ms < began_ms:
            screen.warn(f"the ledger has what a play needs from {local_ms(began_ms, later=True)} on")
            since_ms = began_ms
        found = _facts(connection, since_ms)
    past = past_of_ledger(found, since_ms, where.known_ms)
    if past is None:
        raise InvalidError(f"the ledger knows nothing after {local_ms(where.known_ms)}")
    return past


def _facts(connection: sql.Connection, since_ms: int) -> LedgerFacts:
    """What there is of the slices that were there then or later."""
    there = slices.c.gone_ms.is_(None) | (slices.c.gone_ms > since_ms)
    uids = dict[int, str]()
    own = list[SliceFact]()
    for row in connection.execute(sql.select(slices).where(there)).mappings():
        uids[row["id"]] = row["uid"]
        own.append(SliceFact(**{name: row[name] for name in SliceFact.__struct_fields__}))
    of_jobs = {slice.job_uid or slice.uid for slice in own}
    known = {row["id"]: _account(row) for row in connection.execute(sql.select(accounts)).mappings()}

    def rows(table: sql.Table) -> Iterator[dict[str, Any]]:
        wanted = sql.select(table).join(slices, slices.c.id == table.c.slice_id).where(there)
        for row in connection.execute(wanted).mappings():
            fields = dict(row)
            fields["slice_uid"] = uids[fields.pop("slice_id")]
            if "account_id" in fields:
                fields["account"] = known[fields.pop("account_id")]
            if fields.get("until_ms") == OPEN_MS:
                fields["until_ms"] = None
            yield fields

    texts = {row.id: row.document for row in connection.execute(sql.select(templates))}
    return LedgerFacts(
        slices=own,
        jobs=[JobFact(**row) for row in connection.execute(sql.select(jobs)).mappings() if row["uid"] in of_jobs],
        specs=[SpecFact(templates=texts[row.pop("template_id")], **row) for row in rows(specs)],
        grants=[GrantFact(**row) for row in rows(grants)],
        waits=[WaitFact(**row) for row in rows(waits)],
        policies=[PolicyFact(**row) for row in connection.execute(sql.select(policies)).mappings()],
        interruptions=connection.execute(
            sql.select(sql.func.count()).select_from(unknown_spans).where(unknown_spans.c.until_ms > since_ms)
        ).scalar_one(),
    )


def _account(row: sql.RowMapping) -> LedgerAccount:
    return LedgerAccount(*(row[name] for name in ACCOUNT_FIELDS))
