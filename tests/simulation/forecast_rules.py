"""A forecast is what the next cycle decides.

Of each job that a cycle decides about for the first time, the same is asked without its Workload, and of each other
size without the slice that asks for it. Where a cycle has decided anything new, all that wait are asked about again,
together. Of each edit see `edit_rules`.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from simulation.edit_rules import EditRules
from simulation.violations import Violation
from slicebus.manager.decide import catalog
from slicebus.manager.decide.admission import admitting
from slicebus.manager.decide.admission.snapshots import Since
from slicebus.manager.decide.forecast import hypothesis
from slicebus.manager.decide.forecast.hypothesis import Hypothesis
from slicebus.manager.decide.forecast.verdict import Prospect, Verdict, verdicts
from slicebus.manager.state.store import ManagerStore, owner_ref
from slicebus.manager.state.views import JobView
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Shrink, Wait
from slicebus.slices.admission.preemption import preemptor_uid
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED, Condition
from slicebus.slices.workload.waiting import LEFT_OUT, without_numbers
from slicebus.slices.workload.workload import Counts, Slice, SliceKey
from support.lines import one_by_one

_snapshot_of = catalog.snapshot_of


class ForecastRules:
    """Asks of each slice that waits what would become of it."""

    def __init__(self) -> None:
        self.asked = 0
        """How many verdicts were compared."""
        self.snapshots = 0
        """On how many snapshots."""
        self._decided: dict[str, Decision] = {}
        """What the last cycle decided about each slice, by its UID."""
        self.edits = EditRules()
        self._last: tuple[ManagerStore, Snapshot, list[str] | None, Since] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Know whose snapshot each cycle decides, while the context lasts."""

        def noted(store: ManagerStore, trees: list[str] | None, since: Since, **how: Any) -> Snapshot:
            snapshot = _snapshot_of(store, trees, since, **how)
            self._last = store, snapshot, trees, since
            return snapshot

        with patch.object(catalog, "snapshot_of", noted):
            yield

    def check(self, snapshot: Snapshot, decided: list[Decision]) -> None:
        """Raise Violation for a job of which the forecast would have said something else. It knows of no refusals."""
        if self._last is None or self._last[1] is not snapshot or snapshot.refused:
            return
        store, _, trees, since = self._last
        self.edits.check(store, trees, since, decided)
        decisions, whole = {each.key: each for each in decided}, one_by_one(snapshot)
        waiting = [slice for slice in whole.part.waiting if slice.key in decisions]
        news = [slice for slice in waiting if self._decided.get(slice.uid) != decisions[slice.key]]
        before, others = self.asked, {slice.key: slice for slice in waiting}
        for slice in news:
            if slice.uid not in self._decided and (asked := _before(store, slice)) is not None:
                self._compare(whole, {slice.key: (slice, asked)}, decided)
                del others[slice.key]
            self._decided[slice.uid] = decisions[slice.key]
        if news:
            again = ((slice, asked) for slice in others.values() if (asked := _again(store, slice)) is not None)
            self._compare(whole, {slice.key: (slice, asked) for slice, asked in again}, decided)
        self.snapshots += self.asked > before

    def _compare(
        self, snapshot: Snapshot, asked: Mapping[SliceKey, tuple[Slice, Slice]], decided: list[Decision]
    ) -> None:
        """Compare what is said of some slices with what becomes of those that wait, by whose keys they are."""
        if not asked:
            return
        # Others that wait are told of it by its name.
        imagined = {
            key: msgspec.structs.replace(one, uid=slice.uid, name=slice.name) for key, (slice, one) in asked.items()
        }
        said = verdicts(snapshot, [*imagined.values()], instead_of=[slice for slice, _ in asked.values()])
        decisions = {each.key: each for each in decided}
        for key, (slice, _) in asked.items():
            self.asked += 1
            verdict, decision = said[imagined[key].key], decisions[key]
            if not _is_right(verdict, decision, _losses(slice, decided)):
                raise Violation(f"forecast: of {slice.name} it says {verdict}, and the cycle {decision}")


def _is_right(said: Verdict, decision: Decision, losses: set[tuple[SliceKey, tuple[tuple[str, int], ...]]]) -> bool:
    match decision:
        case Admit() as admit:
            places = [(each.name, each.count, each.flavors) for each in admit.admission.pod_sets]
            told = [(each.name, each.count, each.flavors) for each in said.pod_sets]
            return (said.outcome, said.cluster, told) == (Prospect.ADMITTED, admit.cluster, places)
        case Wait() as wait:
            loses = {(each.slice, _sorted(each.left)) for each in said.losses}
            has_same_words = _says(said.message, wait.message) and _says(said.would_admit, wait.would_admit)
            return said.reason == wait.reason and has_same_words and losses <= loses
        case _:
            return True


def _says(said: str, told: str) -> bool:
    """Whether a text is what somebody is told, who hears no numbers behind others."""
    return said == told or (LEFT_OUT in told and without_numbers(said) == without_numbers(told))


def _losses(slice: Slice, decided: Iterable[Decision]) -> set[tuple[SliceKey, tuple[tuple[str, int], ...]]]:
    """Who loses pods to a slice by this cycle, and what each keeps."""
    return {
        (each.key, _sorted(each.to) if isinstance(each, Shrink) else ())
        for each in decided
        if (isinstance(each, Shrink) and each.beneficiary.uid == slice.uid)
        or (isinstance(each, Evict) and preemptor_uid(each.message) == slice.uid)
    }


def _sorted(counts: Counts) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items()))


def _before(store: ManagerStore, slice: Slice) -> Slice | None:
    """What is asked by a job before it has its first slice, or the one that has another size. None of a job that was
    edited since, and of what nobody has asked for."""
    view = _settled(store, slice)
    if view is None or view.job is None or not _is_as_new(slice):
        return None
    if len(view.slices) == 1:
        if view.outbox is not None:
            return None
        bare = msgspec.structs.replace(view, workloads={}, slices=(), requests={}, cluster=None)
        return _asked(hypothesis.of_view(bare, view.job, now=slice.created), slice)
    if slice.replaces is None or slice.queued_since or slice.grows_unasked:
        return None
    smaller = msgspec.structs.replace(
        view,
        workloads={name: manifest for name, manifest in view.workloads.items() if name != slice.name},
        slices=tuple(one for one in view.slices if one.key != slice.key),
        requests={name: request for name, request in view.requests.items() if name != slice.name},
    )
    return _asked(hypothesis.of_view_at(smaller, slice.counts, factor=0, now=slice.created), slice)


def _again(store: ManagerStore, slice: Slice) -> Slice | None:
    """What is asked by a job like that which waits. Where that has lost quota, or others leave for it, it asks
    itself."""
    if (asked := _before(store, slice)) is not None:
        return asked
    view = _settled(store, slice)
    if view is None:
        return None
    return _asked(hypothesis.of_view_at(view, slice.counts, factor=0, now=slice.created), slice)


def _is_as_new(slice: Slice) -> bool:
    """Whether a slice has lost nothing, and nobody leaves for it."""
    reserved = slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("reason")
    return slice.conditions.keys() <= {Condition.QUOTA_RESERVED} and reserved != WAITING_FOR_PREEMPTED


def _asked(found: Hypothesis, slice: Slice) -> Slice | None:
    """The slice of a hypothesis. None where a step of its own comes first for the job; and where somebody has stopped
    the slice, keeps it off a cluster, has told what its pods request, or has edited the job's pods since it was made: a
    new one is another."""
    asked = found.slice
    return asked if asked is not None and _told_of(asked) == _told_of(slice) else None


def _told_of(slice: Slice) -> tuple[object, ...]:
    return slice.counts, [pod_set.requests for pod_set in slice.pod_sets], slice.observed, slice.active, slice.avoids


def _settled(store: ManagerStore, slice: Slice) -> JobView | None:
    """The view of a job whose slice is what it wants now; None where its reconcile changes that first."""
    workload = store.workloads.get(slice.namespace, slice.name)
    ref = owner_ref(workload) if workload is not None else None
    view = store.view(ref) if ref is not None else None
    if view is None or view.job is None or not view.is_managed or admitting.comes_too_early(view):
        return None
    return view if view.desired.counts == slice.counts else None
