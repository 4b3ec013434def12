"""Gives code its ambient inputs: time, randomness, and the pauses that depend on both.

`slicebus.ambient.clock` has the time and the random numbers of the context that a task runs in, `backoff` how long to
wait before trying again, `retries` the trying, `lasting_failures` after how long somebody is told, `yield_budget` when
long work lets other tasks run. Nothing in here knows a broker or an API server.
"""
