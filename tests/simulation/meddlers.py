"""Users who break the manifest of a job that may run, and mend it later; and clusters that say statuses of other types.

No decision may raise for either: see `fleet`. Nothing else is different in the end.
"""

import asyncio
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, Literal

import msgspec

from simulation.jobs import patch_at_last
from simulation.later import with_later
from simulation.schedule import WORKERS, Moment, Schedule
from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.envelope import WireMessage
from slicebus.proto.messages import Status

Manifest = dict[str, Any]
How = Literal["cluster", "head", "containers", "name", "text", "bounds", "groups"]
_HOW: tuple[How, ...] = ("cluster", "head", "containers", "name", "text", "bounds", "groups")
_CLUSTER = {"RayCluster": "/spec", "RayJob": "/spec/rayClusterSpec"}
_ODD: tuple[Manifest, ...] = (
    {"conditions": "Complete"},
    {"conditions": [{"type": "Complete", "status": True}]},
    {"conditions": [None]},
)
_ODD_OF_KIND: dict[str, tuple[Manifest, ...]] = {
    "Job": ({"succeeded": "x"}, {"active": -1}),
    "RayCluster": ({"state": 7},),
    "RayJob": ({"jobDeploymentStatus": ["Complete"]}, {"rayClusterName": {}}),
    "RayService": ({"activeServiceStatus": "x"},),
}


class Break(Moment):
    """Some Ray job of the manager has a manifest that nobody can run, for a while."""

    kind: str
    pick: int
    how: How
    for_s: float


class Mislead(Moment):
    """A cluster's user says a status again that it has said before, with other types in it."""

    by: str
    pick: int
    odd: int


def with_meddlers(schedule: Schedule) -> Schedule:
    """The same run, on one of five with such users."""
    return with_later(schedule, "meddlers", _meddlers)


def _meddlers(random: Random, run_s: float) -> Iterator[Moment]:
    if random.random() > 1 / 5:
        return
    for _ in range(random.randint(2, 8)):
        at_s = round(random.uniform(1, max(2.0, run_s)), 2)
        if random.random() < 0.5:
            yield Mislead(at_s=at_s, by=random.choice(WORKERS), pick=random.randrange(1000), odd=random.randrange(50))
        else:
            kind, for_s = random.choice(list(_CLUSTER)), random.choice((0.2, 3.0, 20.0))
            yield Break(at_s=at_s, kind=kind, pick=random.randrange(12), how=random.choice(_HOW), for_s=for_s)


def are_in(schedule: Schedule) -> bool:
    """Whether manifests of a run may be broken for a while."""
    return any(isinstance(item, Break) for item in schedule.items)


def misled(said: Iterable[WireMessage], item: Mislead) -> WireMessage | None:
    """The message of a cluster's user; None where its agent has said no status yet."""
    statuses = [message for message in said if message.type == Status.type]
    if not statuses:
        return None
    message = statuses[item.pick % len(statuses)]
    body = msgspec.json.decode(message.body)
    odd = _ODD + _ODD_OF_KIND[body["job"]["kind"]]
    changed = msgspec.json.encode(body | {"job_status": odd[item.odd % len(odd)]})
    return msgspec.structs.replace(message, body=changed, user_id=item.by)


async def break_for_a_while(client: KubeClient, item: Break, *, broken: set[str]) -> None:
    """Break the manifest of a job, and mend it after a while, unless the job has gone.

    `broken` has the UIDs of the jobs that are broken now. Another user leaves these alone: who takes a broken manifest
    for sound brings it back after it was mended, for ever.
    """
    jobs = (await client.list(JOB_RESOURCES[item.kind])).items
    sound = [job for job in jobs if job["metadata"]["uid"] not in broken]
    if not sound:
        return
    job = sound[item.pick % len(sound)]
    broken.add(job["metadata"]["uid"])
    try:
        await _break(client, job, item)
    finally:
        broken.discard(job["metadata"]["uid"])


async def _break(client: KubeClient, job: Manifest, item: Break) -> None:
    resource, name, path = JOB_RESOURCES[item.kind], job["metadata"]["name"], _CLUSTER[item.kind]
    sound = job["spec"] if item.kind == "RayCluster" else job["spec"]["rayClusterSpec"]
    for operation in _broken(path, sound, item.how):
        await client.patch(resource, name, objects.NAMESPACE, JsonPatch([operation]))
    await asyncio.sleep(item.for_s)
    fields = ("headGroupSpec", "workerGroupSpecs")
    mended = [{"op": "add", "path": f"{path}/{field}", "value": sound[field]} for field in fields]
    if item.how == "cluster" and item.kind == "RayJob":
        mended = [{"op": "add", "path": path, "value": sound}]
    await patch_at_last(client, job, *mended)


def _broken(path: str, sound: Manifest, how: How) -> Iterator[Manifest]:
    head, group = f"{path}/headGroupSpec", f"{path}/workerGroupSpecs/0"
    match how:
        case "cluster" if path != "/spec":
            yield {"op": "remove", "path": path}
        case "cluster" | "head":
            yield {"op": "remove", "path": head}
        case "containers":
            yield {"op": "add", "path": f"{head}/template/spec/containers", "value": []}
        case "name" if sound.get("workerGroupSpecs"):
            yield {"op": "add", "path": f"{group}/groupName", "value": "---"}
        case "bounds" if sound.get("workerGroupSpecs"):
            yield {"op": "add", "path": f"{group}/minReplicas", "value": 2**31 - 1}
            yield {"op": "add", "path": f"{group}/maxReplicas", "value": 1}
        case "groups" if sound.get("workerGroupSpecs"):
            yield {"op": "add", "path": f"{path}/workerGroupSpecs", "value": sound["workerGroupSpecs"] * 2}
        case _:
            yield {"op": "add", "path": f"{head}/template", "value": "odd"}
