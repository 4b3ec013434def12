"""The agent role: it carries out the orders of the manager, and reports what happens on its cluster.

`app` builds the parts and runs them. `act` has the tasks, `decide` the pure decisions, `state` what both look at.
Everything that must survive a restart is written on the worker's objects (`annotations` in `state`).
"""
