"""The commands that read recorded messages from a stream or a file, export them, and publish them again."""
