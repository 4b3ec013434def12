"""What objects say, and how it is read: Kueue's names and slicebus' own, conditions, selectors, quantities.

Nothing here knows a workload, a queue or a job kind. A constant that two rooms of the domain need lives here.
"""
