"""`slicebus usage`: sums who used what, from a ledger."""
