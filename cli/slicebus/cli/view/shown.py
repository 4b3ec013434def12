"""What the pages of one request are made of: the present, or a moment of the past, and never both."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Protocol

from slicebus.cli.doctor.check import Check
from slicebus.cli.jobs.rows import JobRow
from slicebus.cli.past.reading import at_moment, require_queues
from slicebus.cli.view.fleet_state import FleetState
from slicebus.cli.view.history import History
from slicebus.cli.view.hour import RecordedHour
from slicebus.cli.view.live import LiveFleet
from slicebus.cli.view.past_moments import PastFleet, PastMoments
from slicebus.kube.client import DEFAULT_NAMESPACE
from slicebus.kube.resources import EVENTS
from slicebus.proto.errors import ForbiddenError, SlicebusError
from slicebus.proto.messages import Manifest


class Shown(Protocol):
    """One moment."""

    @property
    def at(self) -> datetime | None:
        """The moment; None for the present."""

    async def state(self) -> FleetState:
        """The objects. Raises the error because of which nothing can be shown at all."""

    async def queues(self) -> FleetState:
        """The same for a page about queues. Raises ConfigurationError where nobody knows them."""

    async def rows(self) -> Sequence[JobRow]:
        """Every job, in order. Raises as `state`."""

    async def hour(self) -> RecordedHour:
        """The messages and steps of the hour before. Where they cannot be read, it says why."""

    async def cluster_events(self) -> tuple[Sequence[Manifest], str]:
        """The Events about objects without a namespace, and why they are not known."""

    def journal(self) -> tuple[str, Check | None]:
        """Why the journal is not read up to the moment, or nothing; and the dead letters, where they are known."""

    def time(self) -> AbstractContextManager[None]:
        """Lets the moment be the present, so that ages are those of then."""


class Present:
    """What is followed."""

    at = None

    def __init__(self, live: LiveFleet, history: History) -> None:
        self._live = live
        self._history = history

    async def state(self) -> FleetState:
        """The objects as they are followed."""
        return self._live.state()

    async def queues(self) -> FleetState:
        """The same: its page says where the user may not see queues."""
        return self._live.state()

    async def rows(self) -> Sequence[JobRow]:
        """Every job as it is followed."""
        return await self._live.rows()

    async def hour(self) -> RecordedHour:
        """The last hour."""
        return self._history.hour()

    async def cluster_events(self) -> tuple[Sequence[Manifest], str]:
        """What the API server has; nothing where it cannot be asked."""
        if lost := self._live.state().lost:
            return [], lost
        try:
            return (await self._live.client.list(EVENTS, namespace=DEFAULT_NAMESPACE)).items, ""
        except ForbiddenError:
            return [], f"you may not see those of namespace {DEFAULT_NAMESPACE}"
        except SlicebusError as error:
            return [], str(error)

    def journal(self) -> tuple[str, Check | None]:
        """What follows the journal says."""
        hour = self._history.hour()
        return hour.problem, hour.dead_letters

    def time(self) -> AbstractContextManager[None]:
        """It is the present."""
        return nullcontext()


class Then:
    """What the manager knew, and what the streams have."""

    def __init__(self, at: datetime, moments: PastMoments) -> None:
        self.at = at
        self._moments = moments
        self._fleet: PastFleet | None = None

    async def state(self) -> FleetState:
        """The objects as the manager knew them."""
        return (await self._read()).state

    async def queues(self) -> FleetState:
        """The same. Raises ConfigurationError beside a Kueue, whose queues the manager does not watch."""
        state = await self.state()
        require_queues(state.reading.store)
        return state

    async def rows(self) -> Sequence[JobRow]:
        """Every job as the manager knew it."""
        return (await self._read()).rows

    async def hour(self) -> RecordedHour:
        """The hour before the moment."""
        return await self._moments.hour(self.at)

    async def cluster_events(self) -> tuple[Sequence[Manifest], str]:
        """None: the manager does not watch them."""
        return [], "they are not known of that moment"

    def journal(self) -> tuple[str, Check | None]:
        """It is read up to the moment. Dead letters are in queues, and nobody knows of then."""
        return "", None

    def time(self) -> AbstractContextManager[None]:
        """It is the moment."""
        return at_moment(self.at)

    async def _read(self) -> PastFleet:
        """The same for the whole page."""
        self._fleet = self._fleet or await self._moments.fleet(self.at)
        return self._fleet
