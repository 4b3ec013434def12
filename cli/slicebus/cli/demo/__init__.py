"""`slicebus demo`: a manager and two agents in one process, and a scenario that shows what they do."""
