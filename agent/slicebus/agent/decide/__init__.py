"""The decisions of the agent: functions of the store and their arguments, which return commands.

`catalog` lists every decision that is recorded. No clock, randomness, logging or async, and nothing of `act`.
"""
