"""The manager's knowledge: caches, tables, the views of one job, and the annotations on its objects.

No clock, randomness, logging or async, and nothing of `act` or `decide`.
"""
