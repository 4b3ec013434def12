"""What an agent believes of each job."""

from slicebus.agent.decide import reconcile
from slicebus.agent.state.store import Store
from slicebus.decisions.beliefs import Belief, Beliefs
from slicebus.slices.jobs import KINDS


def beliefs(store: Store, *, cluster: str) -> Beliefs:
    """Every job that it has made."""
    found = {}
    for key in sorted(set(store.our_jobs())):
        view = store.view(key)
        status = reconcile.status(view)
        job = view.reading
        assert job is not None
        pods = status.pods.values() if status else ()
        ready, gated = sum(each.ready for each in pods), sum(each.gated for each in pods)
        found[str(key)] = Belief(
            cluster=cluster,
            slice=job.slice,
            version=job.version,
            granted=job.granted,
            wanted=KINDS[key.kind].counts(job.manifest, view.scale_target) if view.scale_target else {},
            note=f"{ready} pods ready, {gated} gated" if status else "it is going",
        )
    return found
