"""Decodes the answer of a list item by item: all items at once take more memory than all that is kept of them.

A server stores objects of 10,000 levels where a definition leaves a part open, and no decoder here reads so many. One
such object must not keep all others from being read: it is read without what lies deeper than any object has a use for.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
import orjson

from slicebus.kube.failures import error_of

Manifest = dict[str, Any]
T = TypeVar("T")
MOST_LEVELS = 120
"""Of what is read of an object that is nested too deep. A list, or an event of a watch, has three more around it."""
_TOO_DEEP = "depth limit"
"""orjson's words for more than 1,024 levels."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{\]}]', re.DOTALL)


class ListPage(msgspec.Struct, frozen=True):
    """The items of one list request. `continue_token` is empty on the last page."""

    items: list[Manifest]
    resource_version: str
    continue_token: str


class ListMetadata(msgspec.Struct, frozen=True):
    """A list's `metadata`."""

    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_token: str = msgspec.field(name="continue", default="")


class EncodedList(msgspec.Struct, frozen=True):
    """A list whose items are not decoded yet."""

    metadata: ListMetadata = ListMetadata()
    items: list[msgspec.Raw] | None = None

    def page(self, named: Manifest, shape: Callable[[Manifest], Manifest]) -> ListPage:
        """The page, with what `shape` makes of each item, which has the fields of `named` too."""
        return ListPage(
            items=[shape(named | decoded(orjson.loads, bytes(item))) for item in self.items or ()],
            resource_version=self.metadata.resource_version,
            continue_token=self.metadata.continue_token,
        )


decode_list = msgspec.json.Decoder(EncodedList).decode


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    """What a decoder reads; of an object that is nested too deep for it, what is not too deep."""
    try:
        try:
            return decode(body)
        except (RecursionError, orjson.JSONDecodeError) as error:
            if isinstance(error, orjson.JSONDecodeError) and _TOO_DEEP not in error.msg:
                raise
            return decode(without_depths(body))
    except (orjson.JSONDecodeError, msgspec.DecodeError) as error:
        raise error_of(502, body) from error


def without_depths(encoded: bytes, most: int = MOST_LEVELS) -> bytes:
    """JSON with null in place of every object and list below so many levels."""
    return b"".join(_shallow(encoded, most))


def _shallow(encoded: bytes, most: int) -> Iterator[bytes]:
    level, copied = 0, 0
    for token in _TOKEN.finditer(encoded):
        if token[0] in (b"{", b"["):
            level += 1
            if level == most + 1:
                yield encoded[copied : token.start()]
        elif token[0] in (b"}", b"]"):
            level -= 1
            if level == most:
                yield b"null"
                copied = token.end()
    yield encoded[copied:]
