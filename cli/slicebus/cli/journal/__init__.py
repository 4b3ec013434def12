"""The recorded messages: read from a stream or a file, exported, and published again."""
