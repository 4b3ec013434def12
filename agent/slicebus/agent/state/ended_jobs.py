"""The jobs of the manager that have ended on the worker, by the name that they had there."""

from slicebus.agent.state.views import JobKey, Tombstone
from slicebus.decisions.table import Table


class EndedJobs:
    """An index of the tombstones, which are by the UID of the manager's job. One name may have several."""

    def __init__(self, tombstones: Table[str, Tombstone]) -> None:
        self._by_key: dict[JobKey, dict[str, Tombstone]] = {}
        self._keys: dict[str, JobKey] = {}
        """The keys of `_by_key`, by UID."""
        tombstones.observe(self._file)

    def of(self, key: JobKey) -> list[Tombstone]:
        """The ends of every job that had the name."""
        return list(self._by_key.get(key, {}).values())

    def _file(self, uid: str, tombstone: Tombstone | object) -> None:
        if uid in self._keys:
            before = self._keys.pop(uid)
            del self._by_key[before][uid]
            if not self._by_key[before]:
                del self._by_key[before]
        if isinstance(tombstone, Tombstone):
            key = self._keys[uid] = JobKey.of(tombstone.job)
            self._by_key.setdefault(key, {})[uid] = tombstone
