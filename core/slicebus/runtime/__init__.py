"""The parts that every role's process has: life cycle, settings, probes, logs, and the executor of commands."""
