"""The definitions of the objects that scheduler backends need, in slicebus' own words, for tests without the
schedulers.

Each has the fields that the agent writes, with the bounds of the real definition, and keeps every other.
"""
