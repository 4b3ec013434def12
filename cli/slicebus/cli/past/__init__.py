"""Shows what commands would have shown at a moment of the past, from the journal alone: no cluster is asked."""
