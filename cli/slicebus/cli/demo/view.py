"""The demo's live view: clusters, quota, chains and hops, drawn from an observation."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slicebus.cli.demo.observation import Observation, SeenJob, SeenSlice
from slicebus.cli.journal.entry_lines import arrow
from slicebus.journal.entry import Entry
from slicebus.journal.page import milliseconds
from slicebus.journal.summary import summary
from slicebus.proto.topology import DECISIONS_TYPE

_QUIET_TYPES = ("heartbeat", DECISIONS_TYPE)
_STATE_STYLES = {"Admitted": "green", "Pending": "yellow"}
_PODS_SHOWN = 24


def view(*, headline: str, step: str, seen: Observation, entries: Sequence[Entry], hops: int) -> RenderableType:
    """The whole view: one panel above the other, with the last `hops` messages."""
    return Group(
        Text.assemble(("slicebus demo", "bold"), ("  " + headline, "dim")),
        Panel(Text(step, style="bold cyan"), border_style="cyan"),
        Columns([_clusters(seen), _quota(seen)], equal=True, expand=True),
        _chains(seen),
        _hops(entries, hops),
    )


def _clusters(seen: Observation) -> Panel:
    table = Table.grid(padding=(0, 2))
    for cluster in seen.clusters:
        mark = Text("●", style="green" if cluster.connected else "red")
        table.add_row(mark, Text(cluster.name, style="bold"), _pods(cluster.running, cluster.gated))
    return Panel(table, title="clusters", title_align="left")


def _quota(seen: Observation) -> Panel:
    table = Table.grid(padding=(0, 2))
    for quota in seen.quotas:
        bar = ProgressBar(total=1.0, completed=quota.share, width=24, complete_style=_fullness(quota.share))
        table.add_row(f"{quota.queue}/{quota.flavor} {quota.resource}", bar, f"{quota.used} of {quota.nominal}")
    return Panel(table, title="quota", title_align="left")


def _chains(seen: Observation) -> Panel:
    table = Table(expand=True, box=None, pad_edge=False, header_style="dim")
    for column in ("job", "on", "pods", "workload slices"):
        table.add_column(column, ratio=2 if column == "workload slices" else None, no_wrap=column != "workload slices")
    for job in seen.jobs:
        table.add_row(f"{job.kind}/{job.name}", job.cluster or "-", _pods(job.running, job.gated), _slices(job))
    return Panel(table, title="jobs and their slices", title_align="left")


def _slices(job: SeenJob) -> Text:
    lines = [_slice(number, slice) for number, slice in enumerate(job.slices, start=1)]
    return Text("\n").join(lines)


def _slice(number: int, slice: SeenSlice) -> Text:
    text = Text.assemble((f"{number} ", "dim"), (f"{slice.name} ", "dim" if _is_over(slice) else ""))
    text.append(f"{slice.counts} ", style="bold")
    text.append(slice.state, style=_STATE_STYLES.get(slice.state, "dim"))
    if slice.message and slice.state == "Pending":
        text.append(f"  {slice.message}", style="yellow")
    return text


def _hops(entries: Sequence[Entry], most: int) -> Panel:
    table = Table.grid(padding=(0, 1))
    began: dict[str, datetime] = {}
    rows = []
    for entry in entries:
        if entry.published is None or entry.type in _QUIET_TYPES:
            continue
        since = entry.published - began.setdefault(entry.correlation_id, entry.published)
        mark, style = arrow(entry)
        rows.append(
            (
                Text(entry.published.strftime("%H:%M:%S.%f")[:-3], style="dim"),
                Text(f"+{milliseconds(since)}" if since > timedelta() else "", style="bold", justify="right"),
                Text(mark, style=style),
                entry.cluster,
                Text(entry.type, style=style),
                Text(entry.subject.rpartition("/")[2], style="bold"),
                Text(summary(entry), overflow="ellipsis", no_wrap=True),
            )
        )
    for row in rows[-most:]:
        table.add_row(*row)
    return Panel(table, title="messages, with the time since their chain began", title_align="left")


def _pods(running: int, gated: int) -> Text:
    """A square for each pod."""
    text = Text("■" * min(running, _PODS_SHOWN), style="green")
    text.append("□" * min(gated, _PODS_SHOWN), style="yellow")
    text.append(f" {running} running", style="dim")
    if gated:
        text.append(f", {gated} gated", style="yellow")
    return text


def _fullness(share: float) -> str:
    return "red" if share > 0.95 else "yellow" if share > 0.75 else "green"


def _is_over(slice: SeenSlice) -> bool:
    return slice.state not in _STATE_STYLES
