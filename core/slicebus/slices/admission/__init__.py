"""Decides which pending slices get quota, who loses it, and why the others wait: `cycle`.

The order of the queue, preemption, fair sharing and reservations each have a module here.
"""
