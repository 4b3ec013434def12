"""A Workload and its slices: what they are, how their chain goes on, what their pods request, and which may start.

Nothing here knows a queue or a cluster.
"""
