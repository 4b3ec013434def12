"""Rule 8 for a job that a user starts anew after an unknown end: nobody else activates its Workload.

The manager deactivates the Workload of a job that its user has suspended, and marks it; it activates it again when the
user resumes the job.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from simulation.violations import Violation
from slicebus.slices.api.api_names import END_KNOWN_CONDITION
from slicebus.slices.workload.workload import Slice


class ActivationRules:
    """Follows who makes Workloads active that were not."""

    def __init__(self) -> None:
        self._activating: list[str] = []
        self._activated: set[str] = set()
        """UIDs of Workloads that a user has activated since their jobs' last unknown end and last deactivation."""

        self._suspended: set[str] = set()
        """UIDs of Workloads that wait for the user who has suspended their job."""

    @contextmanager
    def user_activates(self, name: str) -> Iterator[None]:
        """A user activates a Workload until this ends."""
        self._activating.append(name)
        try:
            yield
        finally:
            self._activating.remove(name)

    def see_slice(self, slice: Slice, old: Slice | None, *, is_suspended: bool = False) -> None:
        """One of the manager's Workloads has changed; `is_suspended`: its mark says that it waits for its user."""
        was_suspended = slice.uid in self._suspended
        (self._suspended.add if is_suspended else self._suspended.discard)(slice.uid)
        if not slice.active or (_is_unknown(slice) and not (old and _is_unknown(old))):
            self._activated.discard(slice.uid)
        elif old is not None and not old.active:
            if slice.name in self._activating:
                self._activated.add(slice.uid)
            elif not was_suspended or _is_unknown(slice):
                raise Violation(f"rule 8: {slice.name} was activated, and no user had done it")

    def has_unknown_end(self, slice: Slice) -> bool:
        """Whether a job has to stay as it is since its end is unknown. What a user has activated since may run."""
        return _is_unknown(slice) and slice.uid not in self._activated


def _is_unknown(slice: Slice) -> bool:
    return slice.conditions.get(END_KNOWN_CONDITION, {}).get("status") == "False"
