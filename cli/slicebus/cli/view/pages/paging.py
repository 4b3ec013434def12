"""Cuts long lists into pages."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from slicebus.proto.errors import ConfigurationError

Shown = TypeVar("Shown")
Other = TypeVar("Other")
PAGE = 100
"""The rows of one page."""


class PageOf(msgspec.Struct, Generic[Shown], frozen=True, kw_only=True):
    """One page of a list."""

    rows: Sequence[Shown]
    number: int
    """From 1."""
    pages: int
    total: int
    """The rows of all pages."""

    def of(self, rows: Sequence[Other]) -> "PageOf[Other]":
        """The same page with these in place of its rows."""
        return PageOf(rows=rows, number=self.number, pages=self.pages, total=self.total)

    @property
    def first(self) -> int:
        """The number of its first row, from 1; 0 where there are none."""
        return (self.number - 1) * PAGE + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """The number of its last row."""
        return (self.number - 1) * PAGE + len(self.rows)


def page_of(rows: Sequence[Shown], number: int) -> PageOf[Shown]:
    """A page by its number; the last one where the list has become shorter."""
    pages = max(1, -(-len(rows) // PAGE))
    number = min(number, pages)
    return PageOf(rows=rows[(number - 1) * PAGE : number * PAGE], number=number, pages=pages, total=len(rows))


def page_number(text: str) -> int:
    """The number in an address; 1 for none. Raises ConfigurationError."""
    if not text:
        return 1
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:9]) == int(text[:10])):
        raise ConfigurationError(f"page {text[:40]}: use a number from 1")
    return int(text)
