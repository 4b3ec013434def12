"""The decisions of the agent: functions of the store and of keyword arguments, which return commands.

`catalog` lists the recorded decisions. Below it lie `order`, `job`, and `pods` and `cluster`: a room imports from the
rooms below it. No clock, randomness, logging or async in here, and no import of `act`.
"""
