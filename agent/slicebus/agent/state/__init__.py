"""The agent's knowledge: caches, tables, the view of one job, and its annotations.

No clock, randomness, logging or async in here, and no import of `act` or `decide`.
"""
