"""Says what an edit of queues or clusters would do to the jobs that are there."""
