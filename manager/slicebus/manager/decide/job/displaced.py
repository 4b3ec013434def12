"""Tells which jobs lack quota since a preemptor has taken it."""

from collections.abc import Iterator

from slicebus.manager.state.owners import job_of
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import JobRef, counts_text
from slicebus.slices.admission.preemption import preempted_by
from slicebus.slices.workload.workload import Slice


def displaced(store: ManagerStore, preemptor: JobRef) -> list[str]:
    """The jobs that this one has displaced and that lack quota still, each with what it has lost; sorted."""
    return sorted(_losses(store, preemptor))


def _losses(store: ManagerStore, preemptor: JobRef) -> Iterator[str]:
    for slice in store.slices.values():
        if slice.job_uid == preemptor.uid or not (loss := _loss(slice, preemptor.uid)):
            continue
        ref = job_of(store, slice.key)
        yield f"{ref.key if ref is not None else slice.key} {loss}"


def _loss(slice: Slice, preemptor: str) -> str:
    if slice.evicting or slice.pending:
        return "was preempted" if preempted_by(slice) == preemptor else ""
    note = slice.reclaimed
    if note is None or not slice.keeps_quota or all(taken.job_uid != preemptor for taken in note.preemptors):
        return ""
    held = slice.held_counts
    lost = {name: count - held.get(name, 0) for name, count in note.before.items() if count > held.get(name, 0)}
    return f"has lost {counts_text(lost)}" if lost else ""
