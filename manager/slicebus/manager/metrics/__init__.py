"""The Prometheus metrics of the manager: steps of slices, contents of queues, durations of resizes."""
