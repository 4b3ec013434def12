"""Reads Workloads as slices, plans the next change of their chain, and picks the pods that may start.

Nothing here knows a queue or a cluster.
"""
