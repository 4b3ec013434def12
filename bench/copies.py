"""Many jobs in a short time: one job that a real fleet runs, and copies of its objects.

The copies have names and UIDs of their own. They are otherwise as the objects of a job come to lie on the manager's
cluster and on the worker's once its status is reported: nobody has to write anything about them.
"""

import asyncio
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import aiohttp
import msgspec
import orjson

from slicebus.bus.contract import Bus
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.journal.streams import read_journals
from slicebus.kube.resources import JOBS, PODS, WORKLOADS, Resource
from slicebus.manager.state.annotations import annotation, job_ref
from slicebus.manager.state.outbox import Dispatch
from slicebus.proto.codec import decode
from slicebus.proto.messages import ClusterName, Status
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import spec_hash

Manifest = dict[str, Any]

_NAME = "sweep-{:06}"
_FIRST = _NAME.format(0)
_COUNTS = {"main": 1}
_PATIENCE_S = 60.0
_LOOKS_S = 0.2
_TRANSACTION = 64
"""Objects of one transaction: etcd takes 128, and 1.5 MB."""
_AT_ONCE = 4


class Template(NamedTuple):
    """The objects of one job of one pod that runs, and the last report on it."""

    job: Manifest
    workload: Manifest
    worker_job: Manifest
    worker_workload: Manifest
    pod: Manifest
    status: Status


async def template(world: World, worker: ClusterName, bus: Bus) -> Template:
    """Have the fleet of a world run a job, and return what comes of it. The quota has to be there."""
    at, own = world.workers[worker], objects.NAMESPACE
    await world.manager.create(JOBS, objects.job(_FIRST))
    async with asyncio.timeout(_PATIENCE_S):
        while not (found := await _settled(world)):  # noqa: ASYNC110 a fleet settles it
            await asyncio.sleep(_LOOKS_S)
    job, workload = found
    [worker_workload] = (await at.list(WORKLOADS, namespace=own)).items
    [pod] = (await at.list(PODS, namespace=own)).items
    return Template(
        job, workload, await at.get(JOBS, _FIRST, own), worker_workload, pod, await _last_status(bus, job["status"])
    )


async def _settled(world: World) -> tuple[Manifest, Manifest] | None:
    job = await world.manager.get(JOBS, _FIRST, objects.NAMESPACE)
    workloads = (await world.manager.list(WORKLOADS, namespace=objects.NAMESPACE)).items
    for workload in workloads:
        ready = {each["type"]: each["status"] for each in workload.get("status", {}).get("conditions", ())}
        dispatched, applied = Dispatch.from_manifest(workload), annotation(workload, api_names.APPLIED_ANNOTATION)
        is_applied = dispatched is not None and str(dispatched.version) == applied
        if is_applied and ready.get("PodsReady") == "True" and job.get("status", {}).get("ready") == 1:
            return job, workload
    return None


async def _last_status(bus: Bus, mirrored: Manifest) -> Status:
    """The status that the manager's job shows, from the journal."""
    records = [record.message async for record in read_journals(bus, "first", follow=False)]
    statuses = [decode(message).message for message in records if message.type == Status.type]
    last = statuses[-1]
    assert isinstance(last, Status)
    assert last.job_status.get("ready") == mirrored.get("ready") == 1
    return last


class Copies:
    """Copies of a template, by number, for a cluster."""

    def __init__(self, of: Template) -> None:
        self._of = of
        self._texts = [orjson.dumps(_without_version(each)).decode() for each in of[:5]]
        self._uids = [each["metadata"]["uid"] for each in of[:5]]
        [original] = self.of_manager(0, ClusterName(of.workload["status"]["clusterName"]), renamed=False)[1:]
        made, recorded = Dispatch.from_manifest(original), Dispatch.from_manifest(of.workload)
        assert made == recorded, "what the worker holds is hashed otherwise"

    def of_manager(self, number: int, cluster: ClusterName, *, renamed: bool = True) -> list[Manifest]:
        """A job and its Workload, on a cluster."""
        job, workload = (orjson.loads(self._copy(text, number) if renamed else text) for text in self._texts[:2])
        workload["status"]["clusterName"] = cluster
        dispatch = Dispatch.from_manifest(workload)
        assert dispatch is not None
        hash = spec_hash(cluster, workload["metadata"]["name"], _COUNTS, _COUNTS)
        moved = msgspec.structs.replace(dispatch, cluster=cluster, hash=hash)
        workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = moved.to_annotation()
        return [job, workload]

    def of_worker(self, number: int) -> list[Manifest]:
        """The job there, its Workload and its pod."""
        return [orjson.loads(self._copy(text, number)) for text in self._texts[2:]]

    def status(self, number: int) -> Status:
        """The last report on a job: nothing that the manager does not know."""
        job, workload = (orjson.loads(self._copy(text, number)) for text in self._texts[:2])
        return msgspec.structs.replace(self._of.status, job=job_ref(job), workload=workload["metadata"]["name"])

    def worker_uid(self, number: int) -> str:
        """The UID of the job there."""
        return self._copy(self._of.worker_job["metadata"]["uid"], number)

    def _copy(self, text: str, number: int) -> str:
        text = text.replace(_FIRST, _NAME.format(number))
        for uid in self._uids:
            text = text.replace(uid, f"{uid[:-12]}{number:012}")
        return text


def resource_of(manifest: Manifest) -> Resource:
    """The resource of an object of a job."""
    return {resource.kind: resource for resource in (JOBS, WORKLOADS, PODS)}[manifest["kind"]]


async def write_to_etcd(url: str, prefix: str, manifests: Iterable[Manifest]) -> None:
    """Write objects where an API server keeps them, as its watches will show them.

    `prefix` is its `--etcd-prefix`. It reads JSON, though it writes built-in kinds as protobuf.
    """
    async with aiohttp.ClientSession() as session:

        async def write(some: Sequence[Manifest]) -> None:
            puts = [{"requestPut": {"key": _key(prefix, each), "value": _value(each)}} for each in some]
            async with session.post(f"{url}/v3/kv/txn", json={"success": puts}) as answer:
                answer.raise_for_status()
                assert (await answer.json())["succeeded"]

        waiting = list(manifests)
        parts = iter([waiting[at : at + _TRANSACTION] for at in range(0, len(waiting), _TRANSACTION)])

        async def write_next() -> None:
            for part in parts:
                await write(part)

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(write_next())


def _key(prefix: str, manifest: Manifest) -> str:
    resource, metadata = resource_of(manifest), manifest["metadata"]
    folder = f"{resource.group}/{resource.plural}" if resource.is_custom else resource.plural
    return b64encode(f"/{prefix}/{folder}/{metadata['namespace']}/{metadata['name']}".encode()).decode()


def _value(manifest: Manifest) -> str:
    return b64encode(orjson.dumps(manifest)).decode()


def _without_version(manifest: Manifest) -> Manifest:
    return manifest | {"metadata": {k: v for k, v in manifest["metadata"].items() if k != "resourceVersion"}}
