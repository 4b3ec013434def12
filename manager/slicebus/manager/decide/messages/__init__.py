"""Handles messages from agents: `message_router` routes them, `message_handlers` has a function for each type."""
