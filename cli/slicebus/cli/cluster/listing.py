"""Prints rows as kubectl does: a table that no terminal wraps, JSON, YAML, or names.

A row is a value of plain fields. Its columns say what of it a table has; JSON and YAML have every field.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from itertools import zip_longest
from typing import Generic, Protocol, TypeVar

import msgspec
import yaml
from rich.cells import cell_len

from slicebus.cli import screen
from slicebus.cli.cluster.options import Output, OutputFormat
from slicebus.cli.durations import local_time
from slicebus.journal.printable import printable


class Named(Protocol):
    """A row of something that kubectl knows by a name."""

    @property
    def resource_name(self) -> str:
        """`workercluster.slicebus.dev/east`."""


Row = TypeVar("Row", bound=Named)
_GAP = "   "


class Column(msgspec.Struct, Generic[Row], frozen=True):
    """One column of a table."""

    title: str
    text: Callable[[Row], str]
    is_wide: bool = False
    """Whether only `-o wide` has it."""


class Listing(Generic[Row]):
    """Prints rows of one kind, once or again and again."""

    def __init__(self, columns: Sequence[Column[Row]], format: OutputFormat, *, at: datetime | None = None) -> None:
        """`at` is the moment that is shown, where it is not the present: a table and a document say so."""
        self._format = format
        self._at = at
        self._columns = [column for column in columns if format.output is Output.WIDE or not column.is_wide]
        self._widths: list[int] = []

    def show(self, rows: Sequence[Row], *, nothing: str = "") -> None:
        """Print all rows. A table without rows is the line `nothing`, on standard error."""
        if self._at is not None and self._format.output.is_table and not self._format.no_headers:
            screen.say(f"AT {local_time(self._at)}")
        match self._format.output:
            case Output.NAME:
                for name in dict.fromkeys(row.resource_name for row in rows):
                    screen.say(name)
            case Output.JSON:
                screen.say_json(msgspec.json.encode(self._document(rows)))
            case Output.YAML:
                screen.say_lines(as_yaml(self._document(rows)))
            case Output.TABLE | Output.WIDE if rows:
                self._print_table(rows)
            case Output.TABLE | Output.WIDE:
                screen.warn(nothing)

    def show_changed(self, rows: Iterable[Row]) -> None:
        """Print rows that have changed: lines of the same table, or one document for each row."""
        for row in rows:
            show_one(row, self._format.output, name=row.resource_name, page=partial(self._print_table, [row]))

    def _document(self, rows: Sequence[Row]) -> dict[str, object]:
        at = {"at": self._at.isoformat()} if self._at is not None else {}
        return {**at, "items": [msgspec.to_builtins(row) for row in rows]}

    def _print_table(self, rows: Sequence[Row]) -> None:
        cells = [[column.text(row) for column in self._columns] for row in rows]
        if not (self._format.no_headers or self._widths):
            cells.insert(0, [column.title for column in self._columns])
        lines, self._widths = aligned(cells, self._widths)
        for line in lines:
            screen.say(line)


def show_one(value: object, output: Output, *, name: str, page: Callable[[], None]) -> None:
    """Print one value of several that come one after the other: as a document, by its name, or by `page`."""
    match output:
        case Output.JSON:
            screen.say_json(msgspec.json.encode(value))
        case Output.YAML:
            screen.say_lines("---\n" + as_yaml(msgspec.to_builtins(value)))
        case Output.NAME:
            screen.say(name)
        case Output.TABLE | Output.WIDE:
            page()


def aligned(rows: Sequence[Sequence[str]], least: Sequence[int] = ()) -> tuple[list[str], list[int]]:
    """The lines of a table, and the widths of its columns, which are at least those of an earlier part of it.

    Columns are as wide as their cells, with three spaces between them, as kubectl has it. Nothing is cut.
    """
    harmless = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*harmless, strict=True)]
    widths = [max(pair) for pair in zip_longest(widths, least, fillvalue=0)]
    lines = [
        _GAP.join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in harmless
    ]
    return lines, widths


def as_yaml(value: object) -> str:
    """A value as YAML, its fields in their order."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip("\n")
