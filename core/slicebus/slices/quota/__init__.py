"""Reads the queues and cohorts that have quota, joins them into trees, and counts who holds how much.

Nothing here decides who gets quota: `slicebus.slices.admission` does.
"""
