"""The domain: pod sets, workload slices and their chains, quota, admission, placement, and the job kinds.

Everything here is a pure function of its arguments. No clock, randomness, I/O, logging or async; time and identifiers
come in as values, decisions go out as values.
"""
