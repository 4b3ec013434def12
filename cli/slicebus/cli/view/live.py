"""Keeps the manager's objects for the pages, and knows how old they are.

A state that cannot be refreshed is shown with its age and the reason, never as the present one.
"""

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from slicebus.ambient.clock import now
from slicebus.cli.cluster.finding import copies_among, job_refs, refusal
from slicebus.cli.cluster.reading import Reading, followed, read, settled
from slicebus.cli.jobs.rows import JobRow, in_order, shown_refs
from slicebus.cli.leaders import Leaders, leaders
from slicebus.cli.place import require_managers
from slicebus.cli.view.fleet_state import FleetState
from slicebus.kube.client import KubeClient
from slicebus.proto.errors import PermanentError, SlicebusError, UnavailableError

_AGAIN_S = 2.0
"""Between two attempts to read what could not be read."""
_LOOK_S = 3.0
"""Between two looks at the managers' Leases, which also show that the server answers."""
_AT_A_TIME = 200
"""Rows that are made before others get their turn."""
_REST = 4.0
"""Rows are made again after so many times of what making them took, so that a large fleet leaves time for the rest."""
_NOT_YET = UnavailableError("the cluster is being read")


class LiveFleet:
    """Follows the manager's objects, from whatever point its server allows it again."""

    def __init__(self, client: KubeClient, *, manager_namespace: str) -> None:
        self.client = client
        self._manager_namespace = manager_namespace
        self._reading: Reading | None = None
        self._leaders = Leaders(unknown="nobody has looked yet")
        self._heard = now()
        self._unread: SlicebusError | None = _NOT_YET
        """Why the objects are not followed; None where they are."""
        self._unanswered: SlicebusError | None = None
        """Why the Leases could not be read; None where they could."""
        self._rows: tuple[int, Sequence[JobRow]] = (-1, ())
        self._rows_due_s = 0.0
        self._making = asyncio.Lock()
        self.version = 0
        """Another number at each change."""
        self._changed = asyncio.Event()

    async def run(self) -> NoReturn:
        """Keep it up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="view:follow")
            group.create_task(self._look(), name="view:leaders")
        raise AssertionError("both tasks go on")

    @property
    def problem(self) -> SlicebusError | None:
        """Why what is there is not the present; None where it is."""
        return self._unread or self._unanswered

    def state(self) -> FleetState:
        """The state now. Raises the error because of which nothing can be shown at all."""
        problem = self.problem
        if self._reading is None:
            raise problem or _NOT_YET
        at, lost = (self._heard, str(problem)) if problem else (now(), "")
        return FleetState(reading=self._reading, leaders=self._leaders, at=at, lost=lost)

    async def rows(self) -> Sequence[JobRow]:
        """Every job, in order. Of a fleet that changes all the time they may be some seconds old. Raises as `state`."""
        loop = asyncio.get_running_loop()
        async with self._making:
            state = self.state()
            made_for, rows = self._rows
            if made_for == self.version or (made_for >= 0 and loop.time() < self._rows_due_s):
                return rows
            version, began_s = self.version, loop.time()
            made = list[JobRow]()
            for number, ref in enumerate(list(shown_refs(state.reading.store))):
                made.append(JobRow.of(state.reading.store, ref, state.sight))
                if number % _AT_A_TIME == _AT_A_TIME - 1:
                    await asyncio.sleep(0)
            ended_s = loop.time()
            self._rows, self._rows_due_s = (version, in_order(made)), ended_s + _REST * (ended_s - began_s)
            return self._rows[1]

    async def after(self, version: int) -> int:
        """The next version after one that the caller knows, as soon as there is one."""
        while self.version == version:
            await self._changed.wait()
        return self.version

    async def _follow(self) -> NoReturn:
        while True:
            try:
                await require_managers(self.client)
                self._reading = await self._read()
                self._rows, self._unread = (-1, ()), None
                self._note_heard()
                async with followed(self.client, self._reading) as changed:
                    while True:
                        await settled(changed)
                        self._note_heard()
            except SlicebusError as error:
                if isinstance(error, PermanentError):
                    self._reading = None  # Its reader may not see it any more, or it is gone.
                is_new, self._unread = str(error) != str(self._unread), error
                if is_new:
                    self._bump()
            await asyncio.sleep(_AGAIN_S)

    async def _read(self) -> Reading:
        reading = await read(self.client, fallback=self.client.namespace)
        store = reading.store
        if not any(shown_refs(store)) and (copies := copies_among(store, job_refs(store))):
            raise refusal(copies[0])
        return reading

    async def _look(self) -> NoReturn:
        while True:
            before = self._leaders, self._unanswered
            try:
                self._leaders, self._unanswered = await leaders(self.client, self._manager_namespace), None
            except SlicebusError as error:
                self._unanswered = error
            if self.problem is None:
                self._heard = now()
            if before[0] != self._leaders or str(before[1]) != str(self._unanswered):
                self._bump()
            await asyncio.sleep(_LOOK_S)

    def _note_heard(self) -> None:
        if self.problem is None:
            self._heard = now()
        self._bump()

    def _bump(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()
