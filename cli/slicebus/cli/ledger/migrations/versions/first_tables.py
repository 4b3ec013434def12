"""Makes the first tables."""

from typing import Any

import sqlalchemy as sql
from alembic import op

revision = "0001"
down_revision = None

_NUMBER = sql.BigInteger()
_ID = sql.BigInteger().with_variant(sql.Integer(), "sqlite")
_ACCOUNT = ("queue", "namespace", "cluster", "flavor", "priority", "user", "requests")


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "accounts",
        sql.Column("id", _ID, primary_key=True),
        *(_text(name) for name in _ACCOUNT),
        sql.UniqueConstraint(*_ACCOUNT, name="accounts_key"),
    )
    op.create_table("jobs", sql.Column("uid", sql.String(64), primary_key=True), *map(_text, _JOB))
    op.create_table(
        "slices",
        sql.Column("id", _ID, primary_key=True),
        sql.Column("uid", sql.String(64), nullable=False, unique=True),
        sql.Column("job_uid", sql.String(64), nullable=False),
        _text("namespace"),
        _text("name"),
        sql.Column("gone_ms", sql.BigInteger(), nullable=True),
    )
    op.create_table(
        "grants",
        _key("slice_id", _ID),
        _key("pod_set", sql.Text()),
        _key("since_ms"),
        *map(_number, ("until_ms", "pods", "ready")),
        sql.Column("account_id", _ID, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "waits",
        _key("slice_id", _ID),
        _key("since_ms"),
        _number("until_ms"),
        *map(_text, ("reason", "message")),
        sql.Column("admitted", sql.Boolean(), nullable=False),
        sql.Column("account_id", _ID, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "kills",
        _key("slice_id", _ID),
        _key("pod_set", sql.Text()),
        _key("at_ms"),
        _number("pods"),
        *map(_text, ("reason", "message")),
        sql.Column("for_uid", sql.String(64), nullable=False),
        sql.Column("account_id", _ID, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "resizes",
        _key("slice_id", _ID),
        _key("pod_set", sql.Text()),
        _key("at_ms"),
        *map(_number, ("before", "after")),
        sqlite_with_rowid=False,
    )
    op.create_table("unknown_spans", _key("since_ms"), _key("until_ms"), _key("reason", sql.Text()), _number("pod_ms"))
    op.create_table("days", _key("day_ms"), _key("account_id", _ID), *map(_number, _SUMS))
    op.create_table("leaders", _key("shard"), _key("epoch"), _number("batches"))
    op.create_table(
        "position",
        _key("id", sql.Integer()),
        *map(_number, ("revision", "next_offset")),
        *(sql.Column(name, sql.BigInteger(), nullable=True) for name in _TIMES),
    )
    for table, column in _INDEXED:
        op.create_index(f"ix_{table}_{column}", table, [column])


_JOB = ("kind", "namespace", "name", "user")
_SUMS = ("granted_ms", "ready_ms", "waited_ms", "waits", "killed")
_TIMES = ("read_ms", "known_ms", "rolled_ms", "details_ms")
_INDEXED = (
    ("slices", "job_uid"),
    ("grants", "until_ms"),
    ("waits", "until_ms"),
    ("kills", "at_ms"),
    ("resizes", "at_ms"),
)


def _text(name: str) -> sql.Column[str]:
    return sql.Column(name, sql.Text(), nullable=False)


def _number(name: str) -> sql.Column[int]:
    return sql.Column(name, sql.BigInteger(), nullable=False)


def _key(name: str, type: sql.types.TypeEngine[Any] = _NUMBER) -> sql.Column[Any]:
    return sql.Column(name, type, primary_key=True, autoincrement=False)
