"""Journal entries as lines for the terminal."""

from rich.text import Text

from slicebus.cli.durations import local_time
from slicebus.cli.screen import styled
from slicebus.journal.entry import Entry
from slicebus.journal.summary import summary
from slicebus.proto.messages import Direction

_ARROWS = {Direction.UP: ("↑", "cyan"), Direction.DOWN: ("↓", "green")}
_DECISIONS = ("·", "magenta")
_UNREADABLE = ("!", "red")


def arrow(entry: Entry) -> tuple[str, str]:
    """The symbol of the direction, and its style."""
    if entry.is_decisions:
        return _DECISIONS
    return _ARROWS.get(entry.direction, _UNREADABLE) if entry.direction else _UNREADABLE


def line(entry: Entry) -> Text:
    """Offset, time, direction, cluster, type, job, and summary."""
    published = entry.published
    mark, colour = arrow(entry)
    clock = local_time(published, timespec="milliseconds") if published else "-"
    return styled(
        (f"{entry.offset:>7} ", "dim"),
        (f"{clock} ", "dim"),
        (f"{mark} ", colour),
        (f"{entry.cluster:<12} ", "bold"),
        (f"{entry.type:<14} ", colour),
        f"{entry.subject:<32} ",
        summary(entry),
    )
