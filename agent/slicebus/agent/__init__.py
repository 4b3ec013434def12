"""The agent role: it carries out the manager's orders on its cluster, and reports what happens there.

`app` builds the parts and runs them. `act` has the tasks, `decide` the pure decisions, `state` what both read.
Everything that must survive a restart is in annotations of the worker's objects (`annotations` in `state`).
"""
