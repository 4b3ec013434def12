"""What happened to one job, from the journal."""
