"""What ends a run."""


class Violation(AssertionError):
    """A rule of the design was broken. The text says which, and by what."""
