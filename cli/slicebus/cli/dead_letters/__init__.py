"""Dead letters: listed, shown, requeued and discarded."""
