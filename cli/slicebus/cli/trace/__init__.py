"""Shows what happened to one job, from the journal."""
