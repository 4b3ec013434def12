"""What Prometheus reads of the manager: the lives of slices, the queues, the times of resizes."""
