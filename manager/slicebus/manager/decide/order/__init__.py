"""What a worker is ordered to hold of a job, when it is ordered, and when again."""
