"""Adds what a play of the past needs: what slices asked for, and what was decided by."""

import sqlalchemy as sql
from alembic import op

revision = "0002"
down_revision = "0001"

_NUMBER = sql.BigInteger()
_ID = sql.BigInteger().with_variant(sql.Integer(), "sqlite")


def upgrade() -> None:
    """Add it. What was before is not known."""
    op.create_table(
        "specs",
        sql.Column("slice_id", _ID, primary_key=True, autoincrement=False),
        sql.Column("at_ms", _NUMBER, primary_key=True, autoincrement=False),
        sql.Column("document", sql.Text(), nullable=False),
        sql.Column("template_id", _ID, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_specs_template_id", "specs", ["template_id"])
    op.create_table(
        "templates",
        sql.Column("id", _ID, primary_key=True),
        sql.Column("hash", sql.String(64), nullable=False, unique=True),
        sql.Column("document", sql.Text(), nullable=False),
    )
    op.create_table(
        "policies",
        *(sql.Column(name, sql.Text(), primary_key=True) for name in ("resource", "namespace", "name")),
        sql.Column("at_ms", _NUMBER, primary_key=True, autoincrement=False),
        sql.Column("document", sql.Text(), nullable=False),
        sqlite_with_rowid=False,
    )
