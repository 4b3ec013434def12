"""Treats decisions as data: the commands that they return, the decider that records them, and the replay of them.

No module in here talks to a server: `runtime` carries the commands out.
"""
