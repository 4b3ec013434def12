"""Recorded decisions are made again, and compared."""
