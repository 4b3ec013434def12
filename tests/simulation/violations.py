"""What ends a day."""


class Violation(AssertionError):
    """A rule of the design was broken. The text says which, and by what."""
