"""Plays a recorded past again with another policy: the manager's own cycle decides, at the times of recorded events."""
