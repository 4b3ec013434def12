"""Reads values from annotations. Whoever may change the object may have written anything there."""

from typing import TypeVar

import msgspec

Value = TypeVar("Value")

_DIGITS = 18
"""Most digits of a number: more do not fit into 64 bits, and int() raises for thousands."""


def read_json(text: str | None, decoder: msgspec.json.Decoder[Value]) -> Value | None:
    """Decode JSON; None for no text, and for text that is not of the decoder's type."""
    if not text:
        return None
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def read_number(text: str | None) -> int:
    """Read a decimal number that is not negative; 0 for anything else."""
    if not text or len(text) > _DIGITS or not (text.isascii() and text.isdigit()):
        return 0
    return int(text)
