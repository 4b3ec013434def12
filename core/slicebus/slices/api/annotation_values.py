"""Reads values from annotations. Anybody who may change the object may have written anything there."""

from typing import TypeVar

import msgspec

Value = TypeVar("Value")

_DIGITS = 18
"""Most digits of a number: more do not fit into 64 bits, and int() raises for thousands."""


def read_json(text: str | None, decoder: msgspec.json.Decoder[Value]) -> Value | None:
    """The value; None for no text, and for a text of another type."""
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
