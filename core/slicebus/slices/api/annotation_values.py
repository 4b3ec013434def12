"""Reads values from annotations. Whoever may change the object may have written anything there."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from slicebus.proto.messages import MOST_VERSION

Value = TypeVar("Value")

_DIGITS = 18
"""Most digits of a number: int() raises for thousands."""


_ROOM_BYTES = 256 * 1024
"""What all annotations of an object have together, by `ValidateAnnotationsSize` of Kubernetes."""
_SPARE_BYTES = 8 * 1024
"""What those of slicebus take on a worker's job, at most: a request has sixteen before it, of eighteen pod sets."""
_SHORT_BYTES = 256
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OBEYED = ("slicebus.dev", "kueue.x-k8s.io", "ray.io")
"""The domains of annotations that somebody goes by who runs the job."""


def with_room(present: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """The changes, with which `kubectl apply` also forgets what it has applied where the object has no room for both.

    That text is a copy of the whole object, and `kubectl apply` does without.
    """
    after = _after(present, changes)
    makes_room = _size_of(after) > _ROOM_BYTES and _LAST_APPLIED in after
    return {**changes, **({_LAST_APPLIED: None} if makes_room else {})}


def with_room_on_copy(present: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """The same on a copy that is slicebus' own: where that text does not make the room, other annotations go too. A
    tenant who fills them would otherwise keep every order off the copy."""
    made = with_room(present, changes)
    after = _after(present, made)
    if _size_of(after) <= _ROOM_BYTES:
        return made
    return {**made, **{name: None for name in too_many(after) if name not in changes}}


def is_full(annotations: Mapping[str, str]) -> bool:
    """Whether they have hardly any room for another short one."""
    return _size_of(annotations) > _ROOM_BYTES - _SHORT_BYTES


def too_many(annotations: Mapping[str, str]) -> list[str]:
    """Those that have to go from a copy so that there is room for slicebus' own: the largest first, and none by which
    anybody runs the job."""
    over = _size_of(annotations) - (_ROOM_BYTES - _SPARE_BYTES)
    names = (name for name in annotations if name.partition("/")[0] not in _OBEYED)
    gone = []
    for name in sorted(names, key=lambda name: (-_bytes_of(name, annotations[name]), name)):
        if over <= 0:
            break
        gone.append(name)
        over -= _bytes_of(name, annotations[name])
    return gone


def _after(present: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in {**present, **changes}.items() if text is not None}


def _size_of(annotations: Mapping[str, str]) -> int:
    return sum(_bytes_of(name, text) for name, text in annotations.items())


def _bytes_of(name: str, text: str) -> int:
    return len(name.encode()) + len(text.encode())


def read_json(text: str | None, decoder: msgspec.json.Decoder[Value]) -> Value | None:
    """Decode JSON; None for no text, and for text that is not of the decoder's type."""
    if not text:
        return None
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def read_number(text: str | None) -> int:
    """Read a decimal number that is not negative, and no higher than a version; 0 for anything else."""
    if not text or len(text) > _DIGITS or not (text.isascii() and text.isdigit()):
        return 0
    number = int(text)
    return number if number <= MOST_VERSION else 0
