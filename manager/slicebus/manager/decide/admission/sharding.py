"""Moves ClusterQueues from one shard of the manager to another (docs/decisions/0057).

The shard that has a queue gives it away in one write, while it writes no admission. From that write on the other shard
has it. That shard decides about it when it has read every admission that was written before.
"""

from collections.abc import Sequence

from slicebus.decisions.commands import Command, Forget, Patch, Remember, Requeue
from slicebus.kube.resources import CLUSTERQUEUES
from slicebus.manager.decide.manifests import annotation_patch
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.tables import ManagerTable
from slicebus.slices.api import api_names


def give_away(store: ManagerStore, *, queue: str, to: int) -> list[Command]:
    """Give a ClusterQueue to a shard, if every admission that was sent to it is answered. From then on nothing is
    decided about it here, whether that is written or not."""
    manifest = store.cluster_queues.get(None, queue)
    sent = [uncertain.decision.admission.cluster_queue for uncertain in store.uncertain.values()]
    if manifest is None or queue in sent:
        return []
    body = annotation_patch(api_names.SHARD_ANNOTATION, str(to))
    return [Forget(table=ManagerTable.HELD, key=queue), Patch(resource=CLUSTERQUEUES, target=manifest, body=body)]


def hold(store: ManagerStore, *, queues: Sequence[str]) -> list[Command]:
    """Begin to decide about ClusterQueues whose admissions are known, and look at their jobs anew: what this process
    knows of their orders is of an earlier time."""
    jobs = [ref for ref in dict.fromkeys(store.refs()) if store.cluster_queue_of(ref) in queues]
    return [
        *(Remember(table=ManagerTable.HELD, key=name, value=True) for name in queues),
        *(Forget(table=table, key=job) for job in jobs for table in (ManagerTable.PUBLISHED, ManagerTable.NOTICES)),
        *(Requeue(job=job, delay_s=0.0) for job in jobs),
    ]
