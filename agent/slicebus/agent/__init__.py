"""The agent role: carries out what the manager sends, and tells it what happens on its cluster.

What to do is decided by pure functions (`orders` for messages, `watching` for the cluster's own changes), which return
commands; the shell (`hands`, `inbox`, `app`) carries them out. Everything that must survive a restart is written on the
worker's objects (`marks`).
"""
