"""The page of what was measured: charts that GitHub draws, and every figure. `all.py` writes it with latest.json."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from figures import HEADER, Figure, number, row


class Bar(NamedTuple):
    """A figure by its name, which is a regular expression. `of_peer`: what it stands beside."""

    name: str
    of_peer: bool = False

    def value(self, found: Sequence[Figure]) -> float | None:
        """Of the first figure with the name."""
        figure = next((figure for figure in found if re.fullmatch(self.name, figure.name)), None)
        return None if figure is None else figure.beside_value if self.of_peer else figure.value


_BURST = r"beside_kueue: dispatch of \d+ jobs"
_RESIZE = r"beside_kueue: resize from 1 pod to 5"
_IN_KUEUE_MODE = "with a Kueue that admits"
CHARTS: Mapping[tuple[str, str], Mapping[str, Bar]] = {
    ("Jobs made at once", "dispatched a second"): {
        "slicebus": Bar(f"{_BURST} made at once"),
        "slicebus, a Kueue admits": Bar(f"{_BURST} {_IN_KUEUE_MODE}"),
        "MultiKueue": Bar(f"{_BURST} made at once", of_peer=True),
    },
    ("A Job grows from 1 pod to 5", "seconds until the fifth may run, p50"): {
        "slicebus, on a worker": Bar(f"{_RESIZE} on the worker {_IN_KUEUE_MODE}, p50", of_peer=True),
        "the same, a Kueue admits": Bar(f"{_RESIZE} on the worker {_IN_KUEUE_MODE}, p50"),
        "slicebus, on the manager": Bar(f"{_RESIZE} on the manager, p50"),
        "MultiKueue, on the manager": Bar(f"{_RESIZE} on the manager, p50", of_peer=True),
    },
    ("What manager and agent ask of their API servers", "requests"): {
        step: Bar(f"api_requests: {step}: requests")
        for step in ("dispatch", "resize from 1 pod to 5", "shrink from 5 pods to 2", "eviction", "end")
    },
    ("Resizes in fleets of so many clusters", "milliseconds, p99"): {
        clusters: Bar(f"fleet: fleet of {clusters}, .*: latency, p99") for clusters in ("1", "10", "100", "1,000")
    },
}
"""By title and unit: their bars by label."""


def page(found: Sequence[Figure], machine: str) -> str:
    """The whole page, in Markdown. A chart of fewer than two figures is left out."""
    parts = [
        "# What was measured",
        f"By `make bench`, which writes this page, on {machine}. Ratios last; the rest belongs to the machine.\n"
        "[bench/README.md](../bench/README.md) says what each figure is, how it is measured, and\n"
        "[what holds the targets that are missed](../bench/README.md#what-holds-the-targets-that-are-missed).",
        *(_chart(title, unit, bars, found) for (title, unit), bars in CHARTS.items()),
        "## Every figure",
        "\n".join([_line(HEADER), _line(["---"] * len(HEADER)), *(_line(row(figure)) for figure in found)]),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _chart(title: str, unit: str, bars: Mapping[str, Bar], found: Sequence[Figure]) -> str:
    """In Mermaid's language."""
    values = {label: value for label, bar in bars.items() if (value := bar.value(found)) is not None}
    if len(values) < 2:
        return ""
    labels = ", ".join(f'"{label}"' for label in values)
    return "\n".join(
        [
            f"## {title}",
            "",
            "```mermaid",
            "xychart-beta horizontal",
            f"  x-axis [{labels}]",
            f'  y-axis "{unit}" 0 --> {_number(max(values.values()))}',
            f"  bar [{', '.join(map(_number, values.values()))}]",
            "```",
        ]
    )


def _number(value: float) -> str:
    """Mermaid parts numbers at commas."""
    return number(value).replace(",", "")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
