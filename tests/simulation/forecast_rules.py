"""A forecast is what the next cycle decides.

Of each job that a cycle decides about for the first time, the same is asked without its Workload. Of each edit see
`edit_rules`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import msgspec

from simulation.edit_rules import EditRules
from simulation.violations import Violation
from slicebus.manager.decide import catalog
from slicebus.manager.decide.admission import admitting
from slicebus.manager.decide.admission.snapshots import Since
from slicebus.manager.decide.forecast import hypothesis
from slicebus.manager.decide.forecast.verdict import Prospect, verdicts
from slicebus.manager.state.store import ManagerStore, owner_ref
from slicebus.manager.state.views import JobView
from slicebus.slices.admission.cycle import Admit, Decision, Wait
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.workload.workload import Slice, SliceKey

_snapshot_of = catalog.snapshot_of


class ForecastRules:
    """Asks of each new slice what would have become of it, before it was there."""

    def __init__(self) -> None:
        self.asked = 0
        """About how many slices."""
        self._known: set[str] = set()
        """The UIDs of the slices that cycles have decided about."""
        self.edits = EditRules()
        self._last: tuple[ManagerStore, Snapshot, list[str] | None, Since] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Know whose snapshot each cycle decides, while the context lasts."""

        def noted(store: ManagerStore, trees: list[str] | None, since: Since) -> Snapshot:
            snapshot = _snapshot_of(store, trees, since)
            self._last = store, snapshot, trees, since
            return snapshot

        with patch.object(catalog, "snapshot_of", noted):
            yield

    def check(self, snapshot: Snapshot, decided: list[Decision]) -> None:
        """Raise Violation for a job of which the forecast would have said something else."""
        if self._last is None or self._last[1] is not snapshot:
            return
        store, _, trees, since = self._last
        self.edits.check(store, trees, since, decided)
        decisions = {each.key: each for each in decided}
        for slice in snapshot.part.waiting:
            if slice.uid not in self._known and slice.key in decisions:
                self._known.add(slice.uid)
                self._check(store, snapshot, slice, decisions)

    def _check(
        self, store: ManagerStore, snapshot: Snapshot, slice: Slice, decisions: dict[SliceKey, Decision]
    ) -> None:
        view = _view_without(store, slice)
        if view is None or view.job is None:
            return
        asked = hypothesis.of_view(view, view.job, now=slice.created)
        if asked.slice is None:
            return
        imagined = msgspec.structs.replace(asked.slice, uid=slice.uid)
        said = verdicts(snapshot, [imagined], instead_of=[slice])[imagined.key]
        self.asked += 1
        match decisions[slice.key]:
            case Admit() as admit:
                places = [(each.name, each.count, each.flavors) for each in admit.admission.pod_sets]
                told = [(each.name, each.count, each.flavors) for each in said.pod_sets]
                is_right = (said.outcome, said.cluster, told) == (Prospect.ADMITTED, admit.cluster, places)
            case Wait() as wait:
                is_right = (said.reason, said.message) == (wait.reason, wait.message)
            case _:
                return
        if not is_right:
            raise Violation(f"forecast: of {slice.name} it says {said}, and the cycle {decisions[slice.key]}")


def _view_without(store: ManagerStore, slice: Slice) -> JobView | None:
    """The view of a job before it had its first slice; None of a job that has had others, or that was edited since."""
    workload = store.workloads.get(slice.namespace, slice.name)
    ref = owner_ref(workload) if workload is not None else None
    view = store.view(ref) if ref is not None else None
    if view is None or view.job is None or len(view.slices) != 1 or view.outbox is not None or not view.is_managed:
        return None
    if slice.conditions or admitting.comes_too_early(view) or view.desired.counts != slice.counts:
        return None
    return msgspec.structs.replace(view, workloads={}, slices=(), requests={}, cluster=None)
