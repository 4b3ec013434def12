"""RayServices: they run until somebody deletes them, and users upgrade them where they run."""

from collections.abc import Iterable, Iterator
from random import Random

import msgspec

from simulation.schedule import Moment, Submit, Upgrade
from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import RAYSERVICES

_HEAD = "/spec/rayClusterConfig/headGroupSpec/rayStartParams"


def has_services(seed: int) -> bool:
    """On one run of three."""
    return Random(f"{seed}/has services").random() < 1 / 3


def with_services(seed: int, moments: Iterable[Moment]) -> Iterator[Moment]:
    """The same, but that of the jobs with a Ray cluster every second one is a service."""
    random, some = Random(f"{seed}/services"), has_services(seed)
    for item in moments:
        if some and isinstance(item, Submit) and item.kind != "Job" and random.random() < 0.5:
            yield msgspec.structs.replace(item, kind="RayService", ends=False)
        else:
            yield item


def upgrades_of(seed: int, run_s: float) -> Iterator[Upgrade]:
    """Several, on runs with services."""
    random = Random(f"{seed}/upgrades")
    for _ in range(random.randint(1, 5) if has_services(seed) else 0):
        yield Upgrade(at_s=round(random.uniform(2, run_s), 2), pick=random.randrange(12))


async def upgrade(clients: Iterable[KubeClient], item: Upgrade) -> str | None:
    """Change what a new cluster of some service starts with; its name, or None where there is none."""
    found = [
        (client, service)
        for client in clients
        for service in (await client.list(RAYSERVICES, namespace=objects.NAMESPACE)).items
    ]
    if not found:
        return None
    client, service = found[item.pick % len(found)]
    name: str = service["metadata"]["name"]
    same = {"op": "test", "path": "/metadata/uid", "value": service["metadata"]["uid"]}
    started = service["spec"]["rayClusterConfig"]["headGroupSpec"].get("rayStartParams") or {}
    other = {"op": "add", "path": _HEAD, "value": {"num-cpus": str(int(started.get("num-cpus", "0")) + 1)}}
    await client.patch(RAYSERVICES, name, objects.NAMESPACE, JsonPatch([same, other]))
    return name
