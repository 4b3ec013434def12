"""Says whether a job would run, before anybody submits it."""
