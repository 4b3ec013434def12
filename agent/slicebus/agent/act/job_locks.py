"""One lock a job: the commands of one decision are carried out before the next decision about the job."""

import asyncio
from weakref import WeakValueDictionary

from slicebus.agent.state.views import JobKey


class JobLocks:
    """Locks by job. A lock lives as long as a task holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[JobKey, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: JobKey) -> asyncio.Lock:
        """The lock of a job. Hold it to decide about the job or to act on it."""
        return self._locks.setdefault(key, asyncio.Lock())
