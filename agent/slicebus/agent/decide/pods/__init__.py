"""The pods of one job: which may start, where they run, and why granted ones are not made or do not run."""
