"""Reads values from annotations. Whoever may change the object may have written anything there."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

Value = TypeVar("Value")

_DIGITS = 18
"""Most digits of a number: more do not fit into 64 bits, and int() raises for thousands."""


_ROOM_BYTES = 256 * 1024
"""What all annotations of an object have together, by `ValidateAnnotationsSize` of Kubernetes."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def with_room(present: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """The changes, with which `kubectl apply` also forgets what it has applied where the object has no room for both.

    That text is a copy of the whole object, and `kubectl apply` does without.
    """
    after = {name: text for name, text in {**present, **changes}.items() if text is not None}
    size = sum(len(name.encode()) + len(text.encode()) for name, text in after.items())
    makes_room = size > _ROOM_BYTES and _LAST_APPLIED in after
    return {**changes, **({_LAST_APPLIED: None} if makes_room else {})}


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
