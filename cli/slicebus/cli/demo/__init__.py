"""`slicebus demo`: a manager and two agents in one process, and a story that shows what they do."""
