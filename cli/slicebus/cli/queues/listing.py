"""Prints queues: a table has a line for each resource of each flavor, a document a queue once."""

from collections.abc import Sequence
from datetime import datetime

from slicebus.cli.cluster.listing import Listing
from slicebus.cli.cluster.options import OutputFormat, Scope
from slicebus.cli.queues.rows import COLUMNS, LOCAL_COLUMNS, NAMESPACE, QueueLine, QueueRow, lines


class QueueListing:
    """Prints ClusterQueues or LocalQueues, once or again and again."""

    def __init__(self, scope: Scope, format: OutputFormat, *, is_local: bool, at: datetime | None = None) -> None:
        """`at` is the moment that is shown, where it is not the present."""
        columns = [*([NAMESPACE] if scope.all_namespaces else []), *LOCAL_COLUMNS] if is_local else COLUMNS
        self._by_line = Listing[QueueLine](columns, format, at=at)
        self._by_queue = Listing[QueueRow]((), format, at=at)
        self._is_table = format.output.is_table
        self._nothing = "no LocalQueues" if is_local else "no ClusterQueues"

    def show(self, rows: Sequence[QueueRow]) -> None:
        """Print all rows."""
        if self._is_table:
            self._by_line.show(lines(rows), nothing=self._nothing)
        else:
            self._by_queue.show(rows)

    def show_changed(self, rows: Sequence[QueueRow]) -> None:
        """Print rows that have changed."""
        if self._is_table:
            self._by_line.show_changed(lines(rows))
        else:
            self._by_queue.show_changed(rows)
