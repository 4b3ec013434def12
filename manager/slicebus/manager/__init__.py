"""The manager role: it makes slices of jobs, gives them quota and a cluster, and tells the workers what to hold.

`app` builds the parts and runs them. `act` has the tasks, `decide` the pure decisions, `state` what both look at, and
`metrics` what is counted. `settings` reads the environment, `permissions` says what the manager does in its cluster.
"""
