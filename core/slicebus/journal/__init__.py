"""The journal of messages and decisions: to record, read, filter and export it, and the traces of jobs in it."""
