"""The decisions of the agent: functions of the store and of keyword arguments, which return commands.

`catalog` lists the recorded decisions. No clock, randomness, logging or async in here, and no import of `act`.
"""
