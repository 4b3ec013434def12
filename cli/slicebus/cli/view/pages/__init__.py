"""What each page shows, as pure functions of what was read. Nothing here waits, connects, or knows HTTP."""
