"""The tasks of the manager: they receive, queue and watch, call decisions, and carry out the commands of these.

Nothing in here decides: what becomes of a job, a message or a cluster is a function of `decide`, called through the
`Decider`, so that it is recorded and can be replayed.
"""
