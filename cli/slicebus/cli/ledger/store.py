"""Writes facts into the database of the ledger, and reads from where to go on.

A write has the facts, and up to where the stream was read, in one transaction. A writer that another one has overtaken
writes nothing.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sql

from slicebus.cli.ledger.database import database_errors, insert, shown
from slicebus.cli.ledger.tables import (
    ACCOUNT_FIELDS,
    OPEN_MS,
    UID_LENGTH,
    accounts,
    grants,
    jobs,
    kills,
    leaders,
    policies,
    position,
    resizes,
    slices,
    specs,
    templates,
    unknown_spans,
    waits,
)
from slicebus.journal.printable import MARK
from slicebus.journal.recording import Source
from slicebus.ledger.bookkeeper import LedgerState, TakenBatches
from slicebus.ledger.books import OpenBooks
from slicebus.ledger.facts import (
    Fact,
    GrantFact,
    JobFact,
    KillFact,
    LedgerAccount,
    PolicyFact,
    ResizeFact,
    SliceFact,
    SpecFact,
    UnknownSpan,
    WaitFact,
)
from slicebus.proto.errors import ConflictError

_POSITION = 1
"""The id of the one row."""
_OF_READING = ("revision", "next_offset", "read_ms", "known_ms")
"""The columns of the position that a write sets; the others are of `retention`."""
_MOST_IDS = 500
"""So many are looked up at once: databases bound the parameters of a statement."""
_UIDS = ("uid", "job_uid", "for_uid")
"""The fields that are UIDs, by their columns: an API server takes any text for that of an owner."""
_MOST_TEMPLATES = 4096
"""So many are remembered."""
Row = dict[str, Any]
Kind = TypeVar("Kind", bound=Fact)


class ReadPosition(msgspec.Struct, frozen=True):
    """Up to where a ledger has read the stream."""

    revision: int = 0
    next_offset: int = 0
    read_ms: int | None = None
    """The time of the last record that was read; None before the first."""
    known_ms: int | None = None
    rolled_ms: int | None = None
    details_ms: int | None = None


class LedgerStore:
    """The database of a ledger, for its one writer. After an error take another one."""

    def __init__(self, engine: sql.Engine) -> None:
        self.engine = engine
        self._ids: dict[str, int] = {}
        """The numbers of slices by UID, of those that are there."""
        self._accounts: dict[LedgerAccount, int] = {}
        self._templates: dict[str, int] = {}
        """Their numbers by text."""

    def load(self) -> tuple[LedgerState, ReadPosition]:
        """What a bookkeeper goes on from, and up to where it has read. Raises the errors of `database_errors`."""
        with database_errors(self.engine), self.engine.begin() as connection:
            where = read_position(connection)
            opened = OpenBooks(
                slices=tuple(
                    SliceFact(uid=row.uid, job_uid=row.job_uid, namespace=row.namespace, name=row.name)
                    for row in connection.execute(sql.select(slices).where(slices.c.gone_ms.is_(None)))
                ),
                grants=tuple(_open(connection, grants, GrantFact)),
                waits=tuple(_open(connection, waits, WaitFact)),
                specs=tuple(_last_specs(connection)),
            )
            taken = [
                TakenBatches(Source("manager", "", row.epoch, shard=row.shard), row.batches)
                for row in connection.execute(sql.select(leaders))
            ]
            known = tuple(_last_policies(connection))
        return LedgerState(opened, tuple(taken), where.known_ms, known), where

    def write(
        self,
        facts: Iterable[Fact],
        taken: Iterable[TakenBatches],
        before: ReadPosition,
        after: ReadPosition,
    ) -> ReadPosition:
        """Write facts and the position after them, and return it.

        Raises ConflictError where another writer has written since the position before was read, and the errors of
        `database_errors`. Nothing is written then.
        """
        after = msgspec.structs.replace(after, revision=before.revision + 1)
        with database_errors(self.engine), self.engine.begin() as connection:
            self._move(connection, before, after)
            self._write_facts(connection, list(facts))
            batches = [{"shard": one.source.shard, "epoch": one.source.epoch, "batches": one.count} for one in taken]
            _upsert(connection, leaders, batches)
        return after

    def forget_templates(self) -> None:
        """Look the numbers of templates up again: some were removed."""
        self._templates = {}

    def _move(self, connection: sql.Connection, before: ReadPosition, after: ReadPosition) -> None:
        row = {"id": _POSITION, **{name: getattr(after, name) for name in _OF_READING}}
        here = (position.c.id == _POSITION) & (position.c.revision == before.revision)
        moved = connection.execute(
            sql.update(position).where(here).values(row).returning(position.c.id)
            if before.revision
            else insert(connection, position).values(row).on_conflict_do_nothing().returning(position.c.id)
        ).first()
        if moved is None:
            raise ConflictError(f"another ledger writes into {shown(self.engine)}: this one stops")

    def _write_facts(self, connection: sql.Connection, facts: Sequence[Fact]) -> None:
        """Write facts, of each key the last. What is there of a moment stays."""
        jobs_, slices_ = (_last_by_key(facts, kind, "uid") for kind in (JobFact, SliceFact))
        _keep(connection, jobs, jobs_)
        _upsert(connection, slices, slices_, key=["uid"])
        begun = [fact for fact in facts if isinstance(fact, GrantFact | WaitFact | KillFact | ResizeFact)]
        asked = list(_of(facts, SpecFact))
        self._look_up(connection, {fact.slice_uid for fact in (*begun, *asked)})
        self._add_accounts(connection, {fact.account for fact in begun if not isinstance(fact, ResizeFact)})
        _upsert(connection, grants, _unique(grants, map(self._row, _of(begun, GrantFact))))
        _upsert(connection, waits, _unique(waits, map(self._row, _of(begun, WaitFact))))
        _keep(connection, kills, _unique(kills, map(self._row, _of(begun, KillFact))))
        _keep(connection, resizes, _unique(resizes, map(self._row, _of(begun, ResizeFact))))
        self._add_templates(connection, {fact.templates for fact in asked})
        _upsert(connection, specs, _unique(specs, map(self._spec, asked)))
        _upsert(connection, policies, _unique(policies, map(_fields, _of(facts, PolicyFact))))
        _keep(connection, unknown_spans, [_fields(fact) for fact in _of(facts, UnknownSpan)])
        for fact in facts:
            if isinstance(fact, SliceFact) and fact.gone_ms is not None:
                self._ids.pop(fact.uid, None)

    def _row(self, fact: GrantFact | WaitFact | KillFact | ResizeFact) -> Row:
        row = _fields(fact)
        row["slice_id"] = self._ids[row.pop("slice_uid")]
        if "account" in row:
            row["account_id"] = self._accounts[row.pop("account")]
        if row.get("until_ms", OPEN_MS) is None:
            row["until_ms"] = OPEN_MS
        return row

    def _spec(self, fact: SpecFact) -> Row:
        template = self._templates[fact.templates]
        return {
            "slice_id": self._ids[fact.slice_uid],
            "at_ms": fact.at_ms,
            "document": fact.document,
            "template_id": template,
        }

    def _look_up(self, connection: sql.Connection, uids: set[str]) -> None:
        """Find the numbers of slices."""
        unknown = sorted(uids - self._ids.keys())
        for at in range(0, len(unknown), _MOST_IDS):
            wanted = sql.select(slices.c.uid, slices.c.id).where(slices.c.uid.in_(unknown[at : at + _MOST_IDS]))
            self._ids.update((row.uid, row.id) for row in connection.execute(wanted))

    def _add_accounts(self, connection: sql.Connection, wanted: set[LedgerAccount]) -> None:
        """Find the numbers of accounts, and make those that are not there."""
        for account in sorted(wanted - self._accounts.keys(), key=repr):
            fields = _fields(account)
            _keep(connection, accounts, [fields])
            same = sql.and_(*(accounts.c[name] == fields[name] for name in ACCOUNT_FIELDS))
            self._accounts[account] = connection.execute(sql.select(accounts.c.id).where(same)).scalar_one()

    def _add_templates(self, connection: sql.Connection, wanted: set[str]) -> None:
        """Find the numbers of pod templates, and make those that are not there."""
        if len(self._templates) > _MOST_TEMPLATES:
            self._templates = {}
        for text in sorted(wanted - self._templates.keys()):
            key = hashlib.sha256(text.encode()).hexdigest()
            _keep(connection, templates, [{"hash": key, "document": text}])
            found = sql.select(templates.c.id).where(templates.c.hash == key)
            self._templates[text] = connection.execute(found).scalar_one()


def read_position(connection: sql.Connection) -> ReadPosition:
    """Up to where the ledger has read."""
    row = connection.execute(sql.select(position).where(position.c.id == _POSITION)).one_or_none()
    return ReadPosition(*row[1:]) if row is not None else ReadPosition()


def _last_specs(connection: sql.Connection) -> Iterator[SpecFact]:
    """The last of each slice that is there."""
    last = (
        sql.select(specs.c.slice_id, sql.func.max(specs.c.at_ms).label("at_ms")).group_by(specs.c.slice_id).subquery()
    )
    wanted = (
        sql.select(slices.c.uid, specs.c.at_ms, specs.c.document, templates.c.document.label("templates"))
        .join(slices, slices.c.id == specs.c.slice_id)
        .join(last, (last.c.slice_id == specs.c.slice_id) & (last.c.at_ms == specs.c.at_ms))
        .join(templates, templates.c.id == specs.c.template_id)
        .where(slices.c.gone_ms.is_(None))
    )
    for row in connection.execute(wanted):
        yield SpecFact(slice_uid=row.uid, at_ms=row.at_ms, document=row.document, templates=row.templates)


def _last_policies(connection: sql.Connection) -> Iterator[PolicyFact]:
    """The last of each object that is there."""
    last = dict[tuple[str, str, str], PolicyFact]()
    for row in connection.execute(sql.select(policies).order_by(policies.c.at_ms)).mappings():
        last[row["resource"], row["namespace"], row["name"]] = PolicyFact(**row)
    return (fact for fact in last.values() if fact.document)


def _open(connection: sql.Connection, table: sql.Table, kind: type[Any]) -> Iterator[Any]:
    """The facts of a table that go on."""
    wanted = (
        sql.select(table, slices.c.uid, *(accounts.c[name].label(f"account_{name}") for name in ACCOUNT_FIELDS))
        .join(slices, slices.c.id == table.c.slice_id)
        .join(accounts, accounts.c.id == table.c.account_id)
        .where(table.c.until_ms == OPEN_MS)
    )
    for row in connection.execute(wanted).mappings():
        account = LedgerAccount(*(row[f"account_{name}"] for name in ACCOUNT_FIELDS))
        own = {name: row[name] for name in kind.__struct_fields__ if name in table.c}
        yield kind(**own | {"slice_uid": row["uid"], "account": account, "until_ms": None})


def _of(facts: Iterable[Fact], kind: type[Kind]) -> Iterator[Kind]:
    return (fact for fact in facts if isinstance(fact, kind))


def _fields(fact: msgspec.Struct) -> Row:
    return {name: _storable(name, getattr(fact, name)) for name in fact.__struct_fields__}


def _storable(name: str, value: Any) -> Any:
    """A value as every database takes it, whoever has written it: of a UID that has no room its hash, and a mark in
    place of each NUL, which PostgreSQL has not in texts."""
    if not isinstance(value, str):
        return value
    if name in _UIDS and len(value) > UID_LENGTH:
        return hashlib.sha256(value.encode()).hexdigest()
    return value.replace("\0", MARK)


def _last_by_key(facts: Iterable[Fact], kind: type[JobFact | SliceFact], key: str) -> list[Row]:
    return list({getattr(fact, key): _fields(fact) for fact in facts if isinstance(fact, kind)}.values())


def _unique(table: sql.Table, rows: Iterable[Row]) -> list[Row]:
    """The rows, of each key the last."""
    key = [column.name for column in table.primary_key]
    return list({tuple(row[name] for name in key): row for row in rows}.values())


def _upsert(
    connection: sql.Connection, table: sql.Table, rows: Sequence[Mapping[str, Any]], key: list[str] | None = None
) -> None:
    """Write rows, in place of those with their keys."""
    if not rows:
        return
    key = key or [column.name for column in table.primary_key]
    into = insert(connection, table)
    changes = {name: into.excluded[name] for name in rows[0] if name not in key}
    connection.execute(into.on_conflict_do_update(index_elements=key, set_=changes), rows)


def _keep(connection: sql.Connection, table: sql.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows, unless there are some with their keys."""
    if rows:
        connection.execute(insert(connection, table).on_conflict_do_nothing(), rows)
