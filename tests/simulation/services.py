"""RayServices: they run until somebody deletes them, and users upgrade them where they run and on the manager."""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import msgspec

from simulation.schedule import Moment, Seed, Submit, Upgrade
from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import RAYSERVICES

Manifest = dict[str, Any]

_HEAD = "/spec/rayClusterConfig/headGroupSpec/rayStartParams"
_VERSION = "rayVersion"
_APPLICATIONS = "serveConfigV2"


def has_services(seed: Seed) -> bool:
    """On one run of three."""
    return Random(f"{seed}/has services").random() < 1 / 3


def with_services(seed: Seed, moments: Iterable[Moment]) -> Iterator[Moment]:
    """The same, but that of the jobs with a Ray cluster every second one is a service."""
    random, some = Random(f"{seed}/services"), has_services(seed)
    for item in moments:
        if some and isinstance(item, Submit) and item.kind != "Job" and random.random() < 0.5:
            yield msgspec.structs.replace(item, kind="RayService", ends=False)
        else:
            yield item


def upgrades_of(seed: Seed, run_s: float) -> Iterator[Upgrade]:
    """Several, on runs with services."""
    random, choice = Random(f"{seed}/upgrades"), Random(f"{seed}/upgrades at")
    for _ in range(random.randint(1, 5) if has_services(seed) else 0):
        at_s, pick = round(random.uniform(2, run_s), 2), random.randrange(12)
        yield Upgrade(at_s=at_s, pick=pick, at=choice.choice(("worker", "manager: cluster", "manager: applications")))


async def upgrade(clients: Iterable[KubeClient], item: Upgrade) -> str | None:
    """Change what a new cluster of some service starts with, or its applications; its name, or None where there is
    none. On a worker another part is changed than on the manager."""
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
    await client.patch(RAYSERVICES, name, objects.NAMESPACE, JsonPatch([same, _edit(service["spec"], item.at)]))
    return name


def edited(service: Manifest) -> tuple[str, str]:
    """What is only edited on the manager."""
    spec = service["spec"]
    return spec["rayClusterConfig"].get(_VERSION, ""), spec[_APPLICATIONS]


def _edit(spec: Manifest, at: str) -> Manifest:
    if at == "manager: applications":
        return {"op": "add", "path": f"/spec/{_APPLICATIONS}", "value": f"{spec[_APPLICATIONS]}\n# again"}
    cluster = spec["rayClusterConfig"]
    if at == "manager: cluster":
        version = f"{cluster.get(_VERSION, '2.47')}.1"
        return {"op": "add", "path": f"/spec/rayClusterConfig/{_VERSION}", "value": version}
    started = cluster["headGroupSpec"].get("rayStartParams") or {}
    return {"op": "add", "path": _HEAD, "value": {"num-cpus": str(int(started.get("num-cpus", "0")) + 1)}}
