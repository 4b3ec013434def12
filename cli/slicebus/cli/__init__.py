"""The `slicebus` command."""
