"""Reduces a large heartbeat to what the manager asked for: whoever sends it chooses its size."""

from collections.abc import Collection, Mapping
from itertools import islice

from msgspec import structs

from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import Heartbeat

LARGE_BYTES = 16 * 1024
"""A usual one has less. It is taken as it is."""
_RESOURCES = 100
"""Resources of a flavor that are kept. A node has about ten."""
_LONGEST = 320
"""Characters of a name: a prefix has 253, and what follows it 63. A quantity has some."""
_BACKENDS = 16
_WHOLE = ""
"""In place of a flavor's name: the whole cluster."""

Quantities = Mapping[str, Mapping[str, str]]


def reduced(store: ManagerStore, heartbeat: Heartbeat) -> Heartbeat:
    """The heartbeat with the flavors and namespaces of the terms alone, and a bounded number of resources of each."""
    flavors = {_WHOLE, *(flavor["metadata"]["name"] for flavor in store.flavors.all())}
    namespaces = {queue["metadata"]["namespace"] for queue in store.local_queues.all()}
    lacking = heartbeat.lacking
    return structs.replace(
        heartbeat,
        capacity=_of(flavors, heartbeat.capacity),
        used=_of(flavors, heartbeat.used),
        ours=_of(flavors, heartbeat.ours),
        lacking=_texts({name: reason for name, reason in lacking.items() if name in namespaces})
        if isinstance(lacking, dict)
        else lacking,
        scheduler_backends=[name for name in heartbeat.scheduler_backends[:_BACKENDS] if len(name) <= _LONGEST],
    )


def _of(flavors: Collection[str], quantities: Quantities) -> dict[str, dict[str, str]]:
    return {
        flavor: dict(islice(_texts(resources).items(), _RESOURCES))
        for flavor, resources in quantities.items()
        if flavor in flavors
    }


def _texts(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if len(name) <= _LONGEST and len(text) <= _LONGEST}
