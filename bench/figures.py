"""What a benchmark has measured: figures beside their peer or limit, as a table and as JSON.

A benchmark is a script that makes `Figure`s for `run` or `report`. Run alone it prints its own table;
`bench/all.py` runs all of them, and puts their figures together.
"""

import argparse
import asyncio
import statistics
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from slicebus.runtime.logs import configure_logging

HEADER = ("figure", "value", "beside", "ratio", "target", "")


class Target(msgspec.Struct, frozen=True):
    """A limit of a figure, or of its ratio to what it is measured beside."""

    limit: float
    is_least: bool = False
    """Whether the figure shall be at least the limit; otherwise at most."""
    of_ratio: bool = False

    def __str__(self) -> str:
        what = "ratio " if self.of_ratio else ""
        return f"{what}{'at least' if self.is_least else 'at most'} {self.limit:g}"

    def is_met_by(self, value: float) -> bool:
        """Whether a value, or a ratio, keeps it."""
        return value >= self.limit if self.is_least else value <= self.limit


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. `ratio` is the figure divided by the one beside it, of the same run."""

    name: str
    value: float
    unit: str
    """`s`, `MB`, `requests` and so on; `/s` for rates."""
    beside: str = ""
    """What it was measured beside: a peer, or a limit that nothing can pass."""
    beside_value: float | None = None
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    """None without a target."""

    @classmethod
    def of(
        cls,
        name: str,
        value: float,
        unit: str,
        *,
        beside: str = "",
        beside_value: float | None = None,
        target: Target | None = None,
    ) -> Self:
        """A figure with its ratio, and whether its target is met. A target of the ratio needs `beside_value`."""
        ratio = value / beside_value if beside_value else None
        measured = ratio if target is not None and target.of_ratio else value
        return cls(
            name=name,
            value=value,
            unit=unit,
            beside=beside,
            beside_value=beside_value,
            ratio=ratio,
            target=str(target or ""),
            met=None if target is None or measured is None else target.is_met_by(measured),
        )


def percentile(values: Sequence[float], rank: int) -> float:
    """Of 99 cut points. One value is all of them."""
    return statistics.quantiles(values, n=100, method="inclusive")[rank - 1] if len(values) > 1 else values[0]


def table(figures: Sequence[Figure]) -> list[str]:
    """Lines for people."""
    rows = [HEADER, *map(row, figures)]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(HEADER))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in rows]


def row(figure: Figure) -> tuple[str, ...]:
    """What `HEADER` names."""
    beside = f"{number(figure.beside_value)} {figure.beside}" if figure.beside_value is not None else figure.beside
    ratio = f"{figure.ratio:.2f}" if figure.ratio is not None else ""
    met = {True: "met", False: "missed", None: ""}[figure.met]
    return (figure.name, f"{number(figure.value)} {figure.unit}", beside, ratio, figure.target, met)


def run(
    parser: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], Coroutine[Any, Any, list[Figure]]]
) -> int:
    """Measure what the options say, and report it. The exit status."""
    add_argument(parser)
    given = parser.parse_args()
    configure_logging(format="console", level="ERROR")
    return report(asyncio.run(measure(given)), json=given.json)


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option that `report` needs."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there, as JSON")


def to_json(figures: Sequence[Figure]) -> bytes:
    """A file of figures."""
    return msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n"


def report(figures: Sequence[Figure], *, json: Path | None) -> int:
    """Print the figures, and write them where they are wanted. The exit status: 1 when a target is missed."""
    print("\n".join(table(figures)))
    if json is not None:
        json.write_bytes(to_json(figures))
    missed = [figure.name for figure in figures if figure.met is False]
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


def number(value: float) -> str:
    """With three digits, or whole."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
