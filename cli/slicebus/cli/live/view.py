"""Draws an observation of a fleet: clusters, quota, jobs with their slices, and the last messages."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slicebus.cli.durations import in_own_zone
from slicebus.cli.journal.entry_lines import arrow
from slicebus.cli.live.observation import Observation, PodCount, SeenJob, SeenSlice, states_text
from slicebus.cli.screen import styled
from slicebus.journal.entry import Entry
from slicebus.journal.page import milliseconds
from slicebus.journal.summary import summary
from slicebus.manager.state.shown_states import ShownState
from slicebus.proto.topology import DECISIONS_TYPE

_QUIET_TYPES = ("heartbeat", DECISIONS_TYPE)
_SLICE_STYLES = {"Admitted": "green", "Pending": "yellow"}
_STATE_STYLES = {
    ShownState.RUNNING: "green",
    ShownState.SUCCEEDED: "dim",
    ShownState.FAILED: "red",
    ShownState.REFUSED: "red",
    ShownState.UNKNOWN: "red",
}
_CLUSTER_MARKS = {True: ("●", "green"), False: ("✗", "red"), None: ("?", "yellow")}
"""The mark and the style of a cluster, by whether it is heard: without colours the mark alone has to say it."""
_PODS_SHOWN = 24
_FRAME = 2
"""The lines that a panel takes beside its rows."""
_TITLES = 1
"""The line of titles over the jobs."""
_TWO_PANELS = 110
"""The columns that clusters and quota need side by side; in fewer, one is above the other."""
_FEWEST = 5
"""The rows that a panel has at least, however low the terminal is."""


class ViewRoom(msgspec.Struct, frozen=True):
    """How many rows the panels have: clusters and quota, jobs, and messages; None is no limit."""

    beside: int | None = None
    jobs: int | None = None
    hops: int | None = None

    @classmethod
    def of(cls, height: int, width: int, *, beside: int, has_hops: bool) -> "ViewRoom":
        """The room in so many lines and columns. `beside` is how many rows clusters and quota would take."""
        is_stacked = width < _TWO_PANELS
        rows = height - _FRAME * (2 + has_hops + is_stacked) - _TITLES
        beside = max(_FEWEST, min(beside, rows // 4 if is_stacked else rows // 3))
        rest = rows - beside * (1 + is_stacked)
        hops = max(_FEWEST, rest // 2) if has_hops else 0
        return cls(beside=beside, jobs=max(_FEWEST, rest - hops), hops=hops)


def view(
    head: Sequence[RenderableType],
    seen: Observation,
    entries: Sequence[Entry] | None,
    *,
    pods: str,
    room: ViewRoom,
) -> RenderableType:
    """The whole view: the head, and one panel above the other. `pods` says what those are that are counted: running, or
    ready. Without `entries` there is no panel of messages."""
    beside = Columns([_clusters(seen, pods, room.beside), _quota(seen, room.beside)], equal=True, expand=True)
    hops = [] if entries is None else [_hops(entries, room.hops)]
    return Group(*head, beside, _chains(seen, pods, is_bounded=room.jobs is not None), *hops)


def _clusters(seen: Observation, pods: str, most: int | None) -> Panel:
    table = Table.grid(padding=(0, 2))
    for cluster in seen.clusters[:most]:
        mark = Text(*_CLUSTER_MARKS[cluster.connected])
        table.add_row(mark, styled((cluster.name, "bold")), _pods(cluster.pods, pods))
    return _panel(table, "clusters", len(seen.clusters), most)


def _quota(seen: Observation, most: int | None) -> Panel:
    table = Table.grid(padding=(0, 2))
    for quota in seen.quotas[:most]:
        name = styled(f"{quota.queue}/{quota.flavor} {quota.resource}")
        if quota.share is None:
            table.add_row(name, "", styled(f"{quota.used} used"))
            continue
        bar = ProgressBar(total=1.0, completed=min(1.0, quota.share), width=24, complete_style=_fullness(quota.share))
        table.add_row(name, bar, styled(f"{quota.used} of {quota.nominal}"))
    return _panel(table, "quota", len(seen.quotas), most)


def _chains(seen: Observation, pods: str, *, is_bounded: bool) -> Panel:
    table = Table(expand=True, box=None, pad_edge=False, header_style="dim")
    spaces = len({job.namespace for job in seen.jobs}) > 1
    for column in ("job", "on", "state", "pods"):
        table.add_column(column, no_wrap=True)
    table.add_column("workload slices", ratio=2, no_wrap=is_bounded)
    for job in seen.jobs:
        name = f"{job.kind}/{f'{job.namespace}/' if spaces else ''}{job.name}"
        state = Text(job.state, style=_STATE_STYLES.get(job.state, "yellow"))
        table.add_row(styled(name), styled(job.cluster or "-"), state, _pods(job.pods, pods), _slices(job))
    title = ", ".join(["jobs and their slices", *states_text(seen.states)])
    return _panel(table, title, len(seen.jobs) + seen.left_out, len(seen.jobs))


def _panel(table: Table, title: str, count: int, most: int | None) -> Panel:
    """A panel that says how many rows it leaves out."""
    more = f"{count - most} more" if most is not None and count > most else None
    return Panel(table, title=title, title_align="left", subtitle=more, subtitle_align="left")


def _slices(job: SeenJob) -> Text:
    lines = [_slice(number, slice) for number, slice in enumerate(job.slices, start=1)]
    return Text("\n").join([*lines, *([styled((job.why, "yellow"))] if job.why else [])])


def _slice(number: int, slice: SeenSlice) -> Text:
    is_over = slice.state not in _SLICE_STYLES
    return styled(
        (f"{number} ", "dim"),
        (f"{slice.name} ", "dim" if is_over else ""),
        (f"{slice.counts} ", "bold"),
        (slice.state, _SLICE_STYLES.get(slice.state, "dim")),
        (f"  {slice.message}" if slice.message and slice.state == "Pending" else "", "yellow"),
    )


def _hops(entries: Sequence[Entry], most: int | None) -> Panel:
    table = Table.grid(padding=(0, 1))
    rows = list(_hop_rows(entries))
    for row in rows[-most:] if most else rows:
        table.add_row(*row)
    zone = datetime.now().astimezone().tzname()
    return Panel(table, title=f"messages, in {zone}, with the time since their chain began", title_align="left")


def _hop_rows(entries: Iterable[Entry]) -> Iterator[tuple[RenderableType, ...]]:
    began: dict[str, datetime] = {}
    for entry in entries:
        if entry.published is None or entry.type in _QUIET_TYPES:
            continue
        since = entry.published - began.setdefault(entry.correlation_id, entry.published)
        mark, style = arrow(entry)
        yield (
            Text(in_own_zone(entry.published).strftime("%H:%M:%S.%f")[:-3], style="dim"),
            Text(f"+{milliseconds(since)}" if since > timedelta() else "", style="bold", justify="right"),
            Text(mark, style=style),
            styled(entry.cluster),
            styled((entry.type, style)),
            styled((entry.subject.rpartition("/")[2], "bold")),
            Text(summary(entry), overflow="ellipsis", no_wrap=True),
        )


def _pods(count: PodCount, word: str) -> Text:
    """A square for each pod."""
    text = Text("■" * min(count.running, _PODS_SHOWN), style="green")
    text.append("□" * min(count.gated, _PODS_SHOWN), style="yellow")
    text.append(f" {count.running} {word}", style="dim")
    if count.gated:
        text.append(f", {count.gated} gated", style="yellow")
    return text


def _fullness(share: float) -> str:
    return "red" if share > 0.95 else "yellow" if share > 0.75 else "green"
