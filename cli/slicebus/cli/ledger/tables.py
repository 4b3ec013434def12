"""Defines the tables of the ledger. Their changes are in `migrations`. Times are Unix time in milliseconds.

The facts are those of `slicebus.ledger.facts`. Slices and accounts have numbers here, so that the many rows of grants
are small.
"""

from sqlalchemy import BigInteger, Boolean, Column, Integer, MetaData, String, Table, Text, UniqueConstraint

OPEN_MS = 253_402_300_800_000
"""The end of what goes on: the year 10000. One index finds it with what ended in a span."""
ACCOUNT_FIELDS = ("queue", "namespace", "cluster", "flavor", "priority", "user", "requests")
"""The columns of an account, as the fields of `LedgerAccount`."""
UID_LENGTH = 64
"""The characters that a UID has room for, and so has a SHA-256 of one that is longer."""
_ID = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows itself only by an INTEGER."""

metadata = MetaData()

accounts = Table(
    "accounts",
    metadata,
    Column("id", _ID, primary_key=True),
    *(Column(name, Text, nullable=False) for name in ACCOUNT_FIELDS),
    UniqueConstraint(*ACCOUNT_FIELDS, name="accounts_key"),
)
jobs = Table(
    "jobs",
    metadata,
    Column("uid", String(UID_LENGTH), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("user", Text, nullable=False),
)
slices = Table(
    "slices",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("uid", String(UID_LENGTH), nullable=False, unique=True),
    Column("job_uid", String(UID_LENGTH), nullable=False, index=True),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("gone_ms", BigInteger, nullable=True),
)
grants = Table(
    "grants",
    metadata,
    Column("slice_id", _ID, primary_key=True, autoincrement=False),
    Column("pod_set", Text, primary_key=True),
    Column("since_ms", BigInteger, primary_key=True),
    Column("until_ms", BigInteger, nullable=False, index=True),
    Column("pods", BigInteger, nullable=False),
    Column("ready", BigInteger, nullable=False),
    Column("account_id", _ID, nullable=False),
    sqlite_with_rowid=False,
)
waits = Table(
    "waits",
    metadata,
    Column("slice_id", _ID, primary_key=True, autoincrement=False),
    Column("since_ms", BigInteger, primary_key=True),
    Column("until_ms", BigInteger, nullable=False, index=True),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("admitted", Boolean, nullable=False),
    Column("account_id", _ID, nullable=False),
    sqlite_with_rowid=False,
)
kills = Table(
    "kills",
    metadata,
    Column("slice_id", _ID, primary_key=True, autoincrement=False),
    Column("pod_set", Text, primary_key=True),
    Column("at_ms", BigInteger, primary_key=True, index=True),
    Column("pods", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("for_uid", String(UID_LENGTH), nullable=False),
    Column("account_id", _ID, nullable=False),
    sqlite_with_rowid=False,
)
resizes = Table(
    "resizes",
    metadata,
    Column("slice_id", _ID, primary_key=True, autoincrement=False),
    Column("pod_set", Text, primary_key=True),
    Column("at_ms", BigInteger, primary_key=True, index=True),
    Column("before", BigInteger, nullable=False),
    Column("after", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
specs = Table(
    "specs",
    metadata,
    Column("slice_id", _ID, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, primary_key=True),
    Column("document", Text, nullable=False),
    Column("template_id", _ID, nullable=False, index=True),
    sqlite_with_rowid=False,
)
"""What a slice asks for from a moment on."""
templates = Table(
    "templates",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("document", Text, nullable=False),
)
"""The pod templates of slices, as far as they are read to admit them: many have the same."""
policies = Table(
    "policies",
    metadata,
    Column("resource", Text, primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("at_ms", BigInteger, primary_key=True),
    Column("document", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""A queue, a flavor, a cluster or a setting from a moment on; no document: it is there no longer."""
unknown_spans = Table(
    "unknown_spans",
    metadata,
    Column("since_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("until_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("reason", Text, primary_key=True),
    Column("pod_ms", BigInteger, nullable=False),
)
days = Table(
    "days",
    metadata,
    Column("day_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("account_id", _ID, primary_key=True, autoincrement=False),
    Column("granted_ms", BigInteger, nullable=False),
    Column("ready_ms", BigInteger, nullable=False),
    Column("waited_ms", BigInteger, nullable=False),
    Column("waits", BigInteger, nullable=False),
    Column("killed", BigInteger, nullable=False),
)
"""The sums of a day of UTC, by its beginning and account: pods times milliseconds, waits that ended with quota, and
pods that were killed."""
leaders = Table(
    "leaders",
    metadata,
    Column("shard", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("batches", BigInteger, nullable=False),
)
"""How many batches of each leader's recording the ledger has."""
position = Table(
    "position",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("read_ms", BigInteger, nullable=True),
    Column("known_ms", BigInteger, nullable=True),
    Column("rolled_ms", BigInteger, nullable=True),
    Column("details_ms", BigInteger, nullable=True),
)
"""One row. `revision` rises with each write, so that of two followers one loses; `next_offset` and `read_ms` say up to
where the stream was read, and `known_ms` up to when the tables say everything; days before `rolled_ms` are in `days`,
and of what ended before `details_ms` there is nothing but these."""
