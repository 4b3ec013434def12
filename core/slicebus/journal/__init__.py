"""Records, reads, filters and exports the journal of messages and decisions, and finds the traces of jobs in it."""
