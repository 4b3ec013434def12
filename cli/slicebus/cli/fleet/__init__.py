"""The commands that list, join and revoke worker clusters, and release their held deletes."""
