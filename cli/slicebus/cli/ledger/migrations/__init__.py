"""The changes of the ledger's tables, in order. Alembic runs those that a database lacks."""
