"""Orders: what a worker shall hold of a job, when that is ordered, and when it is ordered again."""
