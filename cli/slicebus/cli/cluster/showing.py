"""Shows what was read, once or for as long as somebody watches."""

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, TypeVar

from slicebus.cli import screen
from slicebus.cli.cluster.reading import Reading, followed, settled

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient

Row = TypeVar("Row")


def say_first(reading: Reading) -> None:
    """Say what a reader has to know before the result, in one line: what the user may not see. That no
    manager works is said before."""
    if reading.unseen:
        screen.warn(reading.unseen)


async def show(
    client: "KubeClient",
    reading: Reading,
    rows: Callable[[], Mapping[Hashable, Row]],
    *,
    everything: Callable[[list[Row]], None],
    changes: Callable[[list[Row]], None],
    watch: bool,
) -> None:
    """Print `everything`, the rows of a reading by their keys; with `watch` go on with the `changes`, without an end.

    Raises UnavailableError where the server cannot be reached any more.
    """
    say_first(reading)
    seen = rows()
    everything([*seen.values()])
    if not watch:
        return
    async with followed(client, reading) as changed:
        while True:
            await settled(changed)
            before, seen = seen, rows()
            changes([row for key, row in seen.items() if before.get(key) != row])
