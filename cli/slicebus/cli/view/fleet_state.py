"""The manager's objects at one moment, for the pages."""

from datetime import datetime

import msgspec

from slicebus.cli.cluster.reading import Reading
from slicebus.cli.leaders import Leaders
from slicebus.manager.decide.problems import Sight


class FleetState(msgspec.Struct, frozen=True, kw_only=True):
    """The manager's objects, and who led, at one moment."""

    reading: Reading
    leaders: Leaders
    at: datetime
    """The objects were like this then."""
    lost: str = ""
    """Why they are not the present ones; empty where they are."""
    recorded: datetime | None = None
    """Of a moment of the past: when the manager had recorded last by then. None for the present."""

    @property
    def sight(self) -> Sight:
        """What an explanation may rely on."""
        return self.leaders.seen(self.reading.sight)

    @property
    def is_known(self) -> bool:
        """Whether a WorkerCluster's status is that of the moment: a manager works, and what it writes comes here."""
        return self.leaders.fleet_is_known and not self.lost

    @property
    def is_past(self) -> bool:
        """Whether it is what a manager knew at a moment of the past."""
        return self.recorded is not None
