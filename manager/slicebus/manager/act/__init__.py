"""The tasks of the manager: they receive messages, queue jobs, watch clusters, and carry out the commands decided.

Nothing in here decides. Functions of `decide` say what becomes of a job, a message or a cluster. They are called
through the `Decider`, so that each decision is recorded and can be replayed.
"""
