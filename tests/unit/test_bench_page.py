"""The page of the benchmarks: its charts, and that it shows the latest results."""

import msgspec
from all import PAGE, RESULTS, Result, page_of
from figures import Figure
from page import CHARTS, page

FOUND = [
    Figure.of("beside_kueue: dispatch of 50 jobs made at once", 12, "/s", beside="MultiKueue", beside_value=1.25),
    Figure.of("fleet: fleet of 10, 20.0 resizes a second: latency, p99", 30, "ms"),
]


def test_a_chart_shows_figures_and_what_they_stand_beside() -> None:
    shown = page(FOUND, "a machine")
    chart = """## Jobs made at once

```mermaid
xychart-beta horizontal
  x-axis ["slicebus", "MultiKueue"]
  y-axis "dispatched a second" 0 --> 12
  bar [12, 1.25]
```
"""
    assert chart in shown
    assert "| beside_kueue: dispatch of 50 jobs made at once | 12 /s | 1.25 MultiKueue | 9.60 |  |  |\n" in shown
    assert "a machine" in shown


def test_a_chart_of_one_figure_is_left_out() -> None:
    assert page(FOUND, "a machine").count("mermaid") == 1


def test_the_page_shows_the_latest_results() -> None:
    found = msgspec.json.decode(RESULTS.read_bytes(), type=list[Result])
    assert PAGE.read_text() == page_of(found)
    missing = [bar.name for bars in CHARTS.values() for bar in bars.values() if bar.value(found) is None]
    assert not missing
