"""The state of each job as the manager has it, for `slicebus replay --state`."""

from slicebus.decisions.job_states import JobState, JobStates
from slicebus.manager.state.outbox import Progress
from slicebus.manager.state.store import Store
from slicebus.slices.api.kueue import Condition


def job_states(store: Store) -> JobStates:
    """The jobs that the manager manages, and those of which something is left on a cluster."""
    by_job = {}
    for ref in sorted(set(store.refs())):
        view, outbox = store.view(ref), store.view(ref).outbox
        holder, absent = view.holder, outbox is not None and view.is_withdrawing
        waiting = [slice for slice in view.slices if not slice.finished and slice.admission is None]
        notes = [
            f"{slice.name} waits: {slice.conditions.get(Condition.QUOTA_RESERVED, {}).get('message', '')}"
            for slice in waiting
        ]
        if outbox is not None and view.state.progress is not Progress.APPLIED:
            held, progress = view.state
            notes.append(f"version {outbox.record.version} ({held}) is {progress}, not applied")
        by_job[ref.key] = JobState(
            cluster=view.cluster or "",
            slice=holder.name if holder and not absent else "",
            version=outbox.record.version if outbox else 0,
            granted=holder.granted if holder and not absent else {},
            wanted=view.desired.counts if view.job else {},
            note="; ".join(notes),
        )
    return by_job
