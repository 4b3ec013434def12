"""A finding of `slicebus doctor`."""

import msgspec


class Check(msgspec.Struct, frozen=True):
    """One line: what was checked and found, and what to do where that is wrong."""

    subject: str
    found: str
    advice: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing has to be done."""
        return not self.advice
