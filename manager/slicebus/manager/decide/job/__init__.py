"""The parts of a job's reconcile that both modes of admission use: its edits, its end, its pod templates, why it
waits."""
