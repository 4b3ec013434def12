"""Alembic runs it for each change of the tables."""

from alembic import context

from slicebus.cli.ledger.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
