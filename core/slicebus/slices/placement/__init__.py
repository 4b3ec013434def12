"""Finds where a slice fits: the flavors that suit its pods, and the worker cluster that has room for it.

Admission asks this room for each slice that it decides; nothing here knows who else waits.
"""
