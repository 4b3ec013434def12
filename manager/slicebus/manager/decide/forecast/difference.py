"""What an edit of queues, flavors, priorities or clusters would change: who loses pods, who is admitted, who waits for
something else. The next cycle is decided with the edit, and without it."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from slicebus.kube.cache import key_of
from slicebus.kube.resources import WORKLOADPRIORITYCLASSES, Resource
from slicebus.manager.decide.admission.snapshots import Since, snapshot_of
from slicebus.manager.decide.cluster import moves
from slicebus.manager.decide.forecast.verdict import when_all_have_left
from slicebus.manager.state.owners import job_of
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Shrink, Wait, cycle
from slicebus.slices.workload.waiting import without_details
from slicebus.slices.workload.workload import SliceKey


class Fate(StrEnum):
    """What becomes of a job by an edit."""

    EVICTED = "Evicted"
    """It loses all its pods."""
    SHRUNK = "Shrunk"
    """It loses some of them."""
    ADMITTED = "Admitted"
    """It gets quota at once."""
    LATER = "AdmittedLater"
    """It gets quota when others have lost theirs."""
    WAITS = "Waits"
    """It waits for another reason, or would have been admitted without the edit."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What an edit changes for one job."""

    fate: Fate
    job: str
    """`Kind/namespace/name`; the Workload where it names none."""
    slice: SliceKey
    pods: Counts
    """What it has, or waits for."""
    left: Counts = {}
    """What it keeps of that."""
    cluster: str = ""
    reason: str = ""
    """Why it loses pods, or waits."""
    message: str = ""
    before: str = ""
    """Why it waits without the edit; empty where it would not wait."""

    @property
    def takes_pods(self) -> bool:
        """Whether it loses pods that run."""
        return self.fate in (Fate.EVICTED, Fate.SHRUNK)


class _Decided(msgspec.Struct, frozen=True):
    """What is decided in one world."""

    losses: Mapping[SliceKey, Evict | Shrink]
    admitted: Mapping[SliceKey, Admit]
    later: Mapping[SliceKey, Admit]
    """Who is admitted when everybody has left who leaves."""
    waiting: Mapping[SliceKey, Wait]


def edited(
    store: ManagerStore, edits: Iterable[tuple[Resource, Manifest]], without: Collection[tuple[Resource, Manifest]] = ()
) -> ManagerStore:
    """A copy of a store with other objects, or other versions of its own, and `without` some that it has. Jobs have the
    values of their classes; those whose class has gone keep what they have."""
    changed, copied = {(each, key_of(manifest)): manifest for each, manifest in edits}, ManagerStore()
    values = {key[1]: manifest["value"] for (each, key), manifest in changed.items() if each == WORKLOADPRIORITYCLASSES}
    replaced = {*changed, *((each, key_of(manifest)) for each, manifest in without)}
    copied.configure(store.settings)
    for resource, cache in copied.decides_by():
        before = store.cache_of(resource)
        assert before is not None
        for manifest in before.all():
            if (resource, key_of(manifest)) not in replaced:
                cache.put(_with_priority(manifest, values) if values else manifest)
        for (each, _), manifest in changed.items():
            if each == resource:
                cache.put(manifest)
    return copied


def effects(before: ManagerStore, after: ManagerStore, *, moment: datetime) -> list[Effect]:
    """What differs between the next cycles of two worlds: losses first, then admissions, then reasons to wait."""
    was, will = _decide(before, moment), _decide(after, moment)
    found = [*_losses(after, was, will), *_admissions(after, was, will), *_waits(after, was, will)]
    order = list(Fate)
    return sorted(found, key=lambda effect: (order.index(effect.fate), effect.job, effect.slice))


def _with_priority(manifest: Manifest, values: Mapping[str, int]) -> Manifest:
    """A Workload with the value that its WorkloadPriorityClass has by now; any other object as it is."""
    spec = manifest.get("spec")
    ref = spec.get("priorityClassRef") if isinstance(spec, dict) else None
    value = values.get(ref.get("name", "")) if isinstance(ref, dict) else None
    return manifest if value is None else {**manifest, "spec": {**manifest["spec"], "priority": value}}


def _decide(store: ManagerStore, moment: datetime) -> _Decided:
    snapshot = snapshot_of(store, None, Since.at(moment, growth_window_s=store.settings.growth_window_s))
    decided: list[Decision] = [*moves.due(store), *cycle(snapshot)]
    losses = {each.key: each for each in decided if isinstance(each, Evict | Shrink)}
    leaves = losses or snapshot.part.leaving or snapshot.part.shrinking
    later = cycle(when_all_have_left(snapshot, decided)) if leaves else decided
    return _Decided(
        losses=losses,
        admitted={each.key: each for each in decided if isinstance(each, Admit)},
        later={each.key: each for each in later if isinstance(each, Admit)},
        waiting={each.key: each for each in decided if isinstance(each, Wait)},
    )


def _losses(store: ManagerStore, was: _Decided, will: _Decided) -> Iterator[Effect]:
    for key, loss in will.losses.items():
        if key in was.losses and _left(was.losses[key]) == _left(loss):
            continue
        slice = store.slices[key]
        yield Effect(
            fate=Fate.EVICTED if isinstance(loss, Evict) else Fate.SHRUNK,
            job=_name(store, key),
            slice=key,
            pods=slice.held_counts,
            left=_left(loss),
            cluster=slice.cluster or "",
            reason=loss.preemption or (loss.reason if isinstance(loss, Evict) else ""),
            message=loss.message,
        )


def _left(loss: Evict | Shrink) -> Counts:
    return loss.to if isinstance(loss, Shrink) else {}


def _admissions(store: ManagerStore, was: _Decided, will: _Decided) -> Iterator[Effect]:
    later = {key: admit for key, admit in will.later.items() if key in will.waiting and key not in was.later}
    for fate, admitted in ((Fate.ADMITTED, will.admitted), (Fate.LATER, later)):
        for key, admit in admitted.items():
            if key not in was.admitted:
                job = _name(store, key)
                yield Effect(fate=fate, job=job, slice=key, pods=admit.admission.counts, cluster=admit.cluster)


def _waits(store: ManagerStore, was: _Decided, will: _Decided) -> Iterator[Effect]:
    for key, wait in will.waiting.items():
        before = was.waiting.get(key)
        is_same = before is not None and _said(before) == _said(wait)
        if is_same or (key in will.later and key not in was.later):
            continue
        slice = store.slices[key]
        yield Effect(
            fate=Fate.WAITS,
            job=_name(store, key),
            slice=key,
            pods=slice.counts,
            reason=wait.reason,
            message=wait.message,
            before=before.message if before is not None else "",
        )


def _name(store: ManagerStore, key: SliceKey) -> str:
    ref = job_of(store, key)
    return ref.key if ref is not None else key


def _said(wait: Wait) -> tuple[str, str]:
    """Why somebody waits, without the amounts: those differ with every edit of a quota."""
    return wait.reason, without_details(wait.message)
