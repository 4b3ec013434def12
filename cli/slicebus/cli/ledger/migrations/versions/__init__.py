"""One module for each change of the ledger's tables."""
