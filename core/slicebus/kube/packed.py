"""Keeps the large parts of an object as JSON, and decodes them when they are read.

A tree of Python objects takes ten to forty times as much memory as its JSON: a Job of 410 KB in small fields 8 to 17
MB. Whoever makes it is a tenant, and a manager keeps tens of thousands of Jobs, each with its Workload. What decisions
read of all of them are metadata and conditions, and these stay as they are.

A packed object is a dict in every respect but two. It is read-only, as everything in a cache. msgspec does not encode
it, and refuses it loudly: take the parts that are needed. orjson writes it without decoding.
"""

import sys
from collections import OrderedDict
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from copy import deepcopy
from typing import Any

import orjson

Manifest = dict[str, Any]
_SPEC = "spec"
_METADATA = "metadata"
_SMALL_BYTES = 200
"""A spec that is smaller saves nothing."""
_LARGE_BYTES = 16 * 1024
"""Any other part is packed from this size on: usual statuses are smaller."""
_REPEATED = frozenset(
    (
        "apiVersion",
        "kind",
        "namespace",
        "type",
        "status",
        "reason",
        "message",
        "lastTransitionTime",
        "creationTimestamp",
    )
)
"""The fields of metadata and conditions whose texts are the same in many objects: they are kept once."""
_LONGEST_REPEATED = 100
_DECODED_BYTES = 1024**2
"""So much JSON is kept decoded, of the parts that were read last: at forty times the size 40 MB."""


class Packed(dict[str, Any]):
    """An object whose large parts are JSON."""

    __slots__ = ("_encoded",)
    _encoded: tuple[tuple[str, bytes], ...]
    """The packed parts. A dict of one entry would be three times as large."""

    def __getitem__(self, name: str) -> Any:
        for packed_name, encoded in self._encoded:
            if packed_name == name:
                return _decode(encoded)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The part of that name, decoded."""
        try:
            return self[name]
        except KeyError:
            return default

    def __iter__(self) -> Iterator[str]:
        # With its own iterator C code that copies or merges dicts asks for each value, too.
        return iter(list(super().keys()))

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """The parts, decoded."""
        return ItemsView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """The parts, decoded."""
        return ValuesView(self)

    def copy(self) -> Manifest:
        """A plain copy, decoded."""
        return {name: self[name] for name in self}

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Packed):
            other = other.copy()
        return self.copy() == other

    __hash__ = None

    def __or__(self, other: Any) -> Any:
        return self.copy() | other if isinstance(other, dict) else NotImplemented

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Manifest:
        return {name: deepcopy(self[name], memo) for name in self}

    def encoded(self, name: str) -> bytes:
        """The JSON of a part."""
        return next((encoded for packed, encoded in self._encoded if packed == name), b"") or orjson.dumps(self[name])


def packed(manifest: Manifest) -> Manifest:
    """The object with its large parts as JSON; itself where it has none, or is no JSON."""
    if isinstance(manifest, Packed):
        return manifest
    try:
        encoded = {name: part for name, value in manifest.items() if (part := _packed_part(name, value)) is not None}
    except orjson.JSONEncodeError:
        return manifest  # Nested deeper than JSON is written: whoever reads it says so.
    if not encoded:
        return manifest
    plain = {name: value for name, value in manifest.items() if name not in encoded}
    _share(plain)
    made = Packed({name: plain[name] if name in plain else orjson.Fragment(encoded[name]) for name in manifest})
    made._encoded = tuple(encoded.items())
    return made


def encoded_part(manifest: Mapping[str, Any], name: str) -> bytes:
    """The JSON of a part of any object."""
    return manifest.encoded(name) if isinstance(manifest, Packed) else orjson.dumps(manifest[name])


def _share(value: Any) -> None:
    """Put one text in place of equal ones."""
    if isinstance(value, dict):
        for name, entry in value.items():
            if type(entry) is str:
                if name in _REPEATED and len(entry) <= _LONGEST_REPEATED:
                    value[name] = sys.intern(entry)
            else:
                _share(entry)
    elif isinstance(value, list):
        for entry in value:
            _share(entry)


def _packed_part(name: str, value: Any) -> bytes | None:
    """The JSON of a part that is packed."""
    if name == _METADATA or not isinstance(value, (dict, list)):
        return None
    encoded = orjson.dumps(value)
    if len(encoded) <= (_SMALL_BYTES if name == _SPEC else _LARGE_BYTES):
        return None
    # A copy: orjson's has room for some kilobytes more.
    return memoryview(encoded).tobytes()


class _Decoded:
    """Remembers the parts that were decoded last, up to a number of bytes of their JSON. Equal parts are one."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._values: OrderedDict[bytes, Any] = OrderedDict()

    def __call__(self, encoded: bytes) -> Any:
        if encoded in self._values:
            self._values.move_to_end(encoded)
            return self._values[encoded]
        value = orjson.loads(encoded)
        self._values[encoded] = value
        self._bytes += len(encoded)
        while self._bytes > self._most and len(self._values) > 1:
            oldest, _ = self._values.popitem(last=False)
            self._bytes -= len(oldest)
        return value


_decode = _Decoded(_DECODED_BYTES)
