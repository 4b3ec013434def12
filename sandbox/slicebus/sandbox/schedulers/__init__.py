"""Definitions of what scheduler backends make, of slicebus' own writing: for tests without the schedulers themselves.

Each has the fields that the agent writes, with the bounds of the real definition, and keeps every other.
"""
