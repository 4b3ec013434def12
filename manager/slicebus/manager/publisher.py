"""Publishes to the agents, one envelope a message."""
