"""The ledger: a database that follows the journal, and the command that keeps it."""
