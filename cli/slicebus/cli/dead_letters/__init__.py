"""The commands that list, show, requeue and discard dead letters."""
