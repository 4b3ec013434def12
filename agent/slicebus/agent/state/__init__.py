"""What the agent knows: caches, tables, the view of one job, and what its annotations say.

No clock, randomness, logging or async, and nothing of `act` or `decide`.
"""
