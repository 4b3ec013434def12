"""Explains why a job has the size that it has."""
