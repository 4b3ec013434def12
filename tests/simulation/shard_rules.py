"""No tree of quota is in two hands: who admits to a ClusterQueue has it."""

from typing import Any

from simulation.violations import Violation
from slicebus.kube.resources import CLUSTERQUEUES, LEASES, Resource
from slicebus.manager.permissions import COMPONENT
from slicebus.manager.state.shards import claim_of
from slicebus.sandbox.apiserver.api import Api
from slicebus.slices.workload.workload import Slice

Manifest = dict[str, Any]


def check_shard(api: Api, slice: Slice, old: Slice | None, *, by: str, is_late: bool) -> None:
    """Whoever gives a slice its quota holds the Lease of the shard that its ClusterQueue names. `by` has written it.

    `is_late`: it was stopped between its last look at the Lease and the request, which no API server refuses. That
    quota stays within its limits is rule 1, and holds for such an admission too.
    """
    if not by or is_late or slice.admission is None or (old is not None and old.admission is not None):
        return
    name = slice.admission.cluster_queue
    queue = next((each for each in _all(api, CLUSTERQUEUES) if each["metadata"]["name"] == name), None)
    held = {_shard_of(lease) for lease in _all(api, LEASES) if lease["spec"].get("holderIdentity") == by}
    if queue is not None and (shard := claim_of(queue)) not in held:
        raise Violation(f"two hands: {by} of shard {held} admits {slice.name} to {name}, which shard {shard} has")


def _all(api: Api, resource: Resource) -> list[Manifest]:
    return [manifest for key, manifest in api.store.objects.items() if key[:2] == (resource.group, resource.plural)]


def _shard_of(lease: Manifest) -> int:
    return int(lease["metadata"]["name"].removeprefix(COMPONENT).removeprefix("-") or 0)
