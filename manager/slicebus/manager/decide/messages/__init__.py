"""What messages from agents change: `message_router` routes them, `message_handlers` has a function for each."""
