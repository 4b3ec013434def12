"""The worker clusters: listed, joined, revoked, and their held deletes released."""
