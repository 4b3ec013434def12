"""What every reconcile of a job knows, whoever admits it: its edits, its end, its pod templates, why it waits."""
