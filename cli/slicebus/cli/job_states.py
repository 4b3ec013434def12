"""Compares the state of each job as the manager and its agent have it, for `slicebus replay --state`."""

from collections.abc import Mapping

import msgspec

from slicebus.agent.decide.job import reconcile
from slicebus.agent.state.store import AgentStore as AgentStore
from slicebus.manager.state.outbox import Progress
from slicebus.manager.state.store import ManagerStore as ManagerStore
from slicebus.proto.messages import Counts
from slicebus.slices.api.kueue import Condition


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """One job, as one role has it."""

    cluster: str
    slice: str
    """The slice under which the worker's pods may run; empty for none."""
    version: int
    """The spec version: the manager's is dispatched, the agent's applied."""
    granted: Counts
    wanted: Counts
    note: str = ""
    """What only this role knows, for people."""


JobStates = Mapping[str, JobState]
"""The states by `Kind/namespace/name`."""


class Disagreement(msgspec.Struct, frozen=True):
    """A job of one cluster whose states differ between manager and agent; None where a role does not know the job."""

    cluster: str
    job: str
    manager: JobState | None
    agent: JobState | None

    @property
    def about(self) -> tuple[str, ...]:
        """The fields that differ."""
        if self.manager is None or self.agent is None:
            return ("presence",)
        fields = ("slice", "version", "granted", "wanted")
        return tuple(field for field in fields if getattr(self.manager, field) != getattr(self.agent, field))


def of_manager(store: ManagerStore) -> JobStates:
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


def of_agent(store: AgentStore, *, cluster: str) -> JobStates:
    """The jobs that an agent has made."""
    states = {}
    for key in sorted(set(store.our_jobs())):
        view = store.view(key)
        status = reconcile.status(view)
        job = view.reading
        assert job is not None
        pods = status.pods.values() if status else ()
        ready, gated = sum(counts.ready for counts in pods), sum(counts.gated for counts in pods)
        states[str(key)] = JobState(
            cluster=cluster,
            slice=job.slice,
            version=job.version,
            granted=job.granted,
            wanted=view.counts,
            note=f"{ready} pods ready, {gated} gated" if status else "it is being deleted",
        )
    return states


def disagreements(manager: JobStates, agents: Mapping[str, JobStates]) -> list[Disagreement]:
    """The jobs whose states differ, in the clusters of `agents`. A job whose message is on its way differs too."""
    differing = []
    for cluster, agent in sorted(agents.items()):
        mine = {job: state for job, state in manager.items() if state.cluster == cluster}
        for job in sorted(mine.keys() | agent.keys()):
            compared = Disagreement(cluster, job, mine.get(job), agent.get(job))
            if compared.about:
                differing.append(compared)
    return differing
