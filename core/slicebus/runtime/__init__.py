"""Holds the parts of every role's process: life cycle, settings, probes, logs, and the executor of commands."""
