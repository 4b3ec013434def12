"""What every role's process has: logging, signals, and an HTTP endpoint for probes and metrics."""
