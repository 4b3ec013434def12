"""Decodes the answer of a list item by item: all items at once take more memory than all that is kept of them."""

from collections.abc import Callable
from typing import Any

import msgspec
import orjson

Manifest = dict[str, Any]


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
            items=[shape(named | orjson.loads(memoryview(item))) for item in self.items or ()],
            resource_version=self.metadata.resource_version,
            continue_token=self.metadata.continue_token,
        )


decode_list = msgspec.json.Decoder(EncodedList).decode
