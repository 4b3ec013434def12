"""Draws the bar charts of the documents as HTML: on other sites a script does it, which would come from the network."""

import json
import re
from html import escape
from typing import Any

_LABELS = re.compile(r"x-axis (\[.*\])")
_UNIT = re.compile(r'y-axis "(.*?)"')
_BARS = re.compile(r"bar (\[.*\])")


def chart(source: str, *_: Any, **__: Any) -> str:
    """The table of a Mermaid `xychart-beta` with one series: a row for each bar. superfences calls it.

    Raises ValueError for another chart.
    """
    labels, unit, bars = (pattern.search(source) for pattern in (_LABELS, _UNIT, _BARS))
    if not (source.startswith("xychart-beta") and labels and unit and bars):
        raise ValueError(f"no bar chart: {source}")
    values = json.loads(bars[1])
    most = max(values)
    rows = (
        f'<tr><td>{escape(label)}</td><td><meter value="{value}" max="{most}"></meter></td><td>{value}</td></tr>'
        for label, value in zip(json.loads(labels[1]), values, strict=True)
    )
    return f"<table><caption>{escape(unit[1])}</caption><tbody>{''.join(rows)}</tbody></table>"
