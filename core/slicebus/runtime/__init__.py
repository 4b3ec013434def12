"""What the process of every role has: its life cycle, settings, probes, logs, and the executor of its commands."""
