"""The state of each job as the agent has it, for `slicebus replay --state`."""

from slicebus.agent.decide import reconcile
from slicebus.agent.state.store import Store
from slicebus.decisions.job_states import JobState, JobStates


def job_states(store: Store, *, cluster: str) -> JobStates:
    """The jobs that this agent has made."""
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
