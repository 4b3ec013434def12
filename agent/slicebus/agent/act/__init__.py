"""The tasks of the agent: they receive, queue and watch, call decisions, and carry out the commands of these.

Nothing in here decides: what becomes of an order or of a job is a function of `decide`, called through the `Decider`,
so that it is recorded and can be replayed.
"""
