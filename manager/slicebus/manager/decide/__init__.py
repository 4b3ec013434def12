"""The decisions of the manager: functions of the store and their arguments, which return commands.

`catalog` lists every decision that is recorded. Below it lie `messages`, `modes`, `admission` and `kueue`, `job` and
`cluster`, `order`, and `manifests`: a room imports from the rooms below it. No clock, randomness, logging or async, and
nothing of `act`.
"""
