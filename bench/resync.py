"""Measures what it costs to find that 10,000 jobs do not differ: bytes on the wire, and time beside a plain list.

    python bench/resync.py [--jobs 10000] [--rounds 5]

One embedded API server has the jobs, as an agent makes them. In each round they are listed as a reflector lists them,
over HTTP and in pages of 500; then the agent's inventory of the same jobs, from its caches, is made, encoded, decoded
and compared by a manager that holds the same. Both happen in one process, one after the other.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import figures
from figures import Figure, Target
from prometheus_client import CollectorRegistry

from slicebus.agent.act.inventory import InventoryPublisher
from slicebus.agent.settings import AgentSettings
from slicebus.agent.state import annotations
from slicebus.agent.state.store import AgentStore as AgentStore
from slicebus.agent.state.watched import SELECTORS
from slicebus.ambient.clock import now, random_bytes
from slicebus.cli.demo import objects
from slicebus.decisions.commands import Publish
from slicebus.decisions.decider import Decider
from slicebus.kube.client import KubeClient
from slicebus.kube.informers import Informers
from slicebus.kube.resources import JOBS, NAMESPACES, PODS, WORKLOADS
from slicebus.manager.act.delete_guard import DeleteGuard
from slicebus.manager.act.resyncer import Resyncer
from slicebus.manager.decide.cluster.delete_breaker import DeleteLimits
from slicebus.manager.decide.manifests import workload_manifest
from slicebus.manager.state.outbox import Dispatch
from slicebus.manager.state.store import ManagerStore as ManagerStore
from slicebus.proto.codec import decode, encode
from slicebus.proto.envelope import Envelope, WireMessage
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, Inventory, JobRef, Message
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks
from slicebus.sandbox.apiserver import EmbeddedApiServer
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.fingerprints import spec_hash
from slicebus.slices.jobs import KINDS

EAST = ClusterName("east")
PAGE = 500
MOST_MB = Target(2)
MOST_TIMES = Target(1.5, of_ratio=True)
Manifest = dict[str, Any]


def worker_job(number: int) -> Manifest:
    """A job as the agent makes it, with a status as a Job controller writes it."""
    ref = JobRef("batch/v1", "Job", objects.NAMESPACE, f"sweep-{number:05}", f"5f5ed85f-b2ea-4765-aa57-{number:012}")
    job = KINDS["Job"].worker_copy(objects.job(ref.name), {})
    at = annotations.job_metadata(ref, workload=slice_of(ref), version=1, grant={"main": 1})
    at["annotations"][api_names.BASELINE_ANNOTATION] = annotations.encode_counts({"main": 1})
    metadata = job["metadata"] | {name: job["metadata"].get(name, {}) | at[name] for name in at}
    status = {"active": 1, "ready": 1, "startTime": "2026-01-31T12:00:00Z", "uncountedTerminatedPods": {}}
    return job | {"metadata": metadata, "status": status}


def slice_of(ref: JobRef) -> str:
    return f"job-{ref.name}-1a2b3"


def managers_side(job: Manifest, ref: JobRef, version: int) -> tuple[Manifest, Manifest]:
    """The manager's job and its Workload, admitted, dispatched and reported."""
    own = objects.job(ref.name) | {"status": job["status"]}
    own["metadata"] |= {"uid": ref.uid, "resourceVersion": str(version), "generation": 1}
    hash = spec_hash(EAST, slice_of(ref), {"main": 1}, {"main": 1})
    annotations = {
        api_names.DISPATCHED_ANNOTATION: Dispatch(version=1, hash=hash).to_annotation(),
        api_names.APPLIED_ANNOTATION: "1",
    }
    workload = workload_manifest(
        own,
        KINDS["Job"].pod_sets(own),
        ref=ref,
        name=slice_of(ref),
        queue=objects.QUEUE,
        annotations=annotations,
        spec={"priority": 0},
    )
    workload["metadata"] |= {
        "uid": f"w-{ref.uid}",
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": "2026-01-31T12:00:00Z",
    }
    said = {"status": "True", "reason": "Is", "message": "", "lastTransitionTime": "2026-01-31T12:00:00Z"}
    assignment = {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}}
    workload["status"] = {
        "clusterName": EAST,
        "admission": {"clusterQueue": "batch", "podSetAssignments": [assignment]},
        "conditions": [said | {"type": type} for type in ("QuotaReserved", "Admitted", "PodsReady")],
    }
    return own, workload


def copy_of(job: Manifest, workload: Manifest, version: int) -> Manifest:
    """The job's Workload on its worker."""
    metadata, given = job["metadata"], job["metadata"]["annotations"]
    own = {name: given[name] for name in (api_names.MANAGER_UID_ANNOTATION, api_names.SPEC_VERSION_ANNOTATION)}
    made = {
        "name": workload["metadata"]["name"],
        "namespace": objects.NAMESPACE,
        "uid": f"c-{metadata['name']}",
        "resourceVersion": str(version),
        "labels": {api_names.ORIGIN_LABEL: api_names.ORIGIN},
        "annotations": own
        | {api_names.JOB_ANNOTATION: f"Job/{metadata['name']}", api_names.JOB_UID_ANNOTATION: metadata["uid"]},
    }
    return {"apiVersion": kueue.API_VERSION, "kind": "Workload", "metadata": made, "spec": workload["spec"]}


def pod_of(job: Manifest, version: int) -> Manifest:
    """The job's one pod, running."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-0",
            "namespace": objects.NAMESPACE,
            "uid": f"p-{name}",
            "resourceVersion": str(version),
            "labels": {"batch.kubernetes.io/job-name": name, kueue.POD_SET_LABEL: "main"},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
            ],
        },
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


async def listed(client: KubeClient) -> list[Manifest]:
    """A plain list of the jobs, as a reflector makes it."""
    items: list[Manifest] = []
    async for page in client.pages(JOBS, labels=SELECTORS[JOBS], limit=PAGE):
        items += page.items
    return items


def wire_bytes(message: WireMessage) -> int:
    """Body, headers and properties, and the AMQP frames around them, generously."""
    headers = sum(len(name) + len(value) + 6 for name, value in message.headers.items())
    properties = (message.message_id, message.correlation_id, message.user_id, message.type, message.content_type)
    return len(message.body) + headers + sum(len(text or "") + 1 for text in properties) + 100


class Sides:
    """An agent's store and a manager's, that hold the same."""

    def __init__(self) -> None:
        self.agent, self.manager = AgentStore(), ManagerStore()
        self.wire: list[WireMessage] = []
        self.published: list[Message] = []
        self._issuer = Issuer(epoch=1, user=EAST, now=now, random=random_bytes)
        self.client, registry = KubeClient.from_url("http://127.0.0.1:1"), CollectorRegistry()
        executor = Executor(
            client=self.client,
            caches=self.manager.cache_of,
            tables=self.manager.tables(),
            publish=self._publish,
            requeue=lambda ref, delay_s: self._differs(ref),
            component="bench",
            record=self._record,
        )
        decide, limits = Decider(self.manager), DeleteLimits(share=0.2, count=20, window_s=60.0)
        guard = DeleteGuard(
            limits, client=self.client, decide=decide, executor=executor, requeue=self._differs, registry=registry
        )
        informers = Informers(
            self.client, optional=(), unserved=self.manager.unserved, definitions=self.manager.definitions
        )
        self.resyncer = Resyncer(
            client=self.client,
            informers=informers,
            decide=decide,
            executor=executor,
            locks=Locks(),
            guard=guard,
            registry=registry,
        )
        settings = AgentSettings(amqp_url="memory://east@bench", cluster=EAST, manager_user="manager")
        self.inventories = InventoryPublisher(settings, store=self.agent, publish=self._take, listed=lambda key: None)
        for _, cache in self.agent.caches():
            cache.synced.set()

    def fill(self, jobs: list[Manifest]) -> None:
        for job in jobs:
            ref, version = annotations.reference(job), int(job["metadata"]["resourceVersion"])
            own, workload = managers_side(job, ref, version)
            self.manager.jobs["Job"].put(own)
            self.manager.workloads.put(workload)
            made = {JOBS: job, WORKLOADS: copy_of(job, workload, version), PODS: pod_of(job, version)}
            for resource, cache in self.agent.caches():
                if resource in made:
                    cache.put(made[resource])

    async def _take(self, message: Message) -> None:
        """Over the wire and into the manager, as its inbox takes it."""
        await asyncio.sleep(0)
        sent = encode(self._issuer.envelope(message, EAST, ClusterUid("uid-of-east")), message)
        self.wire.append(sent)
        received = decode(sent)
        assert isinstance(received.message, Inventory)
        await self.resyncer.take(received.envelope, received.message)

    def _record(self, regarding: Manifest, **event: Any) -> None:
        raise AssertionError(f"nothing is to be said of {regarding['metadata']['name']}: {event}")

    async def _publish(self, command: Publish, caused_by: Envelope | None) -> None:
        self.published.append(command.message)

    def _differs(self, ref: JobRef) -> None:
        raise AssertionError(f"{ref.key} differs")


async def timed(what: Callable[[], Any]) -> float:
    began = time.perf_counter()
    await what()
    return time.perf_counter() - began


async def measure(given: argparse.Namespace) -> list[Figure]:
    jobs, rounds = given.jobs, given.rounds
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        await client.create(NAMESPACES, objects.namespace(objects.NAMESPACE))
        for number in range(jobs):
            manifest = worker_job(number)
            made = await client.create(JOBS, manifest)
            await client.replace(JOBS, made | {"status": manifest["status"]}, subresource="status")
        sides = Sides()
        try:
            found = await listed(client)
            sides.fill(found)
            lists, inventories = [], []
            for _ in range(rounds):
                lists.append(await timed(lambda: listed(client)))
                sides.wire.clear()
                inventories.append(await timed(sides.inventories.publish))
        finally:
            await sides.client.aclose()
        assert len(found) == jobs
        assert not sides.published, sides.published[:3]
    size, largest = sum(map(wire_bytes, sides.wire)), max(len(message.body) for message in sides.wire)
    plain, resync = statistics.median(lists), statistics.median(inventories)
    what = f"{jobs:,} jobs that do not differ"
    return [
        Figure.of(f"inventory on the wire of {what}", size / 1e6, "MB", target=MOST_MB),
        Figure.of("inventory on the wire, a job", size / jobs, "bytes"),
        Figure.of("pages of an inventory", len(sides.wire), "messages"),
        Figure.of("largest page of an inventory", largest, "bytes"),
        Figure.of(
            f"inventory and comparing of {what}",
            resync,
            "s",
            beside="plain list",
            beside_value=plain,
            target=MOST_TIMES,
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    return figures.run(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
