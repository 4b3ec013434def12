"""One lock a job: what was decided for it is carried out before anything else is decided."""

import asyncio
from weakref import WeakValueDictionary

from slicebus.agent.state.views import JobKey


class JobLocks:
    """Locks that live as long as somebody holds one or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[JobKey, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: JobKey) -> asyncio.Lock:
        """To be held by whoever acts on the job."""
        return self._locks.setdefault(key, asyncio.Lock())
