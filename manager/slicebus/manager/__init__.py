"""The manager role: it makes slices of jobs, gives them quota and a cluster, and publishes to each worker what it shall
hold.

`app` builds the parts and runs them. `act` has the tasks, `decide` the pure decisions, `state` the caches and tables
that both read, and `metrics` the Prometheus metrics. `settings` reads the environment, and `permissions` lists what the
manager may do in its cluster.
"""
