"""The recorded messages: reading them from the stream, choosing among them, exporting them, and the story they tell."""
