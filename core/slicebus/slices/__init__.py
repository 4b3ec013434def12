"""Holds the domain, in rooms: `api`, `workload`, `quota`, `placement`, `admission`, `jobs` and `schedulers`.

A room imports from the rooms before it in this order, never back. `jobs` and `schedulers` know no quota, placement or
admission.

Everything here is a pure function of its arguments: no clock, randomness, I/O, logging or async. Time and identifiers
come in as values, and decisions go out as values.
"""
