"""What somebody may have written into an annotation: everybody who may change the object, and anything."""

from typing import TypeVar

import msgspec

Value = TypeVar("Value")

_DIGITS = 18
"""Of a number: more do not fit into 64 bits, and of thousands int() raises."""


def read_json(text: str | None, decoder: msgspec.json.Decoder[Value]) -> Value | None:
    """The value; None for no text, and for one that is not of the decoder's type."""
    if not text:
        return None
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def read_number(text: str | None) -> int:
    """A decimal number that is not negative; 0 for anything else."""
    if not text or len(text) > _DIGITS or not (text.isascii() and text.isdigit()):
        return 0
    return int(text)
