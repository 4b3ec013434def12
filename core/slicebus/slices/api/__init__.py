"""Reads what objects say: the names of Kueue and of slicebus, conditions, selectors, quantities.

Nothing here knows a workload, a queue or a job kind. A constant that two rooms of the domain need lives here.
"""
