"""Decides what the manager's journal says of use: grants, waits, kills and resizes, with their times.

It takes entries and returns facts. It opens no database and no stream, and reads no clock.
"""
