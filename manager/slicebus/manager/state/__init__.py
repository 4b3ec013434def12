"""What the manager knows: caches, tables, the views of one job, and what its annotations say.

No clock, randomness, logging or async, and nothing of `act` or `decide`.
"""
