"""The tasks of the manager: they receive messages, queue jobs, watch clusters, and carry out the commands decided.

Nothing in here decides. What becomes of a job, a message or a cluster is a function of `decide`. It is called through
the `Decider`, so that it is recorded and can be replayed.
"""
