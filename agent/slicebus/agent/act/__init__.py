"""The tasks of the agent: they receive, queue and watch, call decisions, and carry out the commands that come back.

Nothing in here decides. A function of `decide` decides about every order and every job; the `Decider` calls it, and
records the call for replay.
"""
