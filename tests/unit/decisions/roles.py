"""A small role: a cache, a table, and decisions, recorded on an in-process bus."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from slicebus.bus.contract import Record
from slicebus.decisions.commands import Command, Create, Emit, Patch, Publish, Remove, Requeue
from slicebus.decisions.decider import Decider, Incoming
from slicebus.decisions.replay import Model, Replayed, Replayer
from slicebus.decisions.table import Table
from slicebus.journal.recorder import Recorder
from slicebus.journal.recording import Source
from slicebus.kube.cache import Cache
from slicebus.kube.resources import PODS, Resource
from slicebus.proto.codec import decode
from slicebus.proto.errors import ConflictError
from slicebus.proto.messages import ClusterName, JobRef, Resync
from slicebus.proto.topology import common_topology
from slicebus.sandbox.bus import MemoryBroker, MemoryBus

Manifest = dict[str, Any]
SOURCE = Source("manager", "", 1)
JOB = JobRef("batch/v1", "Job", "team", "train", "u")


class Store:
    """What the role decides by."""

    def __init__(self) -> None:
        self.pods = Cache()
        self.seen: Table[JobRef, int] = Table(JobRef, int)

    def decides_by(self) -> Iterator[tuple[Resource, Cache]]:
        yield PODS, self.pods

    def tables(self) -> Mapping[str, Table[Any, Any]]:
        return {"seen": self.seen}

    def is_foreign(self, resource: Resource, manifest: Manifest) -> bool:
        return manifest["metadata"].get("labels") == {"foreign": "true"}


def names(store: Store) -> list[str]:
    return [pod["metadata"]["name"] for pod in store.pods.all()]


def seen(store: Store, *, job: JobRef) -> int | None:
    return store.seen.get(job)


def node_of(store: Store, *, name: str) -> Any:
    """Raises where there is none."""
    pod = store.pods.get("team", name)
    if pod is None:
        raise ConflictError(f"no pod {name}")
    return pod["spec"]["node"]


def reason(store: Store, *, incoming: Incoming, times: int) -> str:
    return getattr(incoming.message, "reason", "") * times


def act(store: Store) -> list[Command]:
    """Every command there is."""
    resync = Resync(reason="x")
    return [
        command
        for pod in store.pods.all()
        for command in (
            Create(resource=PODS, manifest={"metadata": {"name": "new"}}),
            Patch(resource=PODS, target=pod, body={"a": 1}, subresource="status"),
            Remove(resource=PODS, target=pod),
            Emit(regarding=pod, reason="R", note="n"),
            Publish(cluster=ClusterName("east"), message=resync),
            Requeue(job=JOB, delay_s=0.5),
        )
    ]


DECISIONS: tuple[Callable[..., Any], ...] = (names, seen, node_of, reason, act)


def model(state: Callable[[], Store] = Store, **other: Callable[..., Any]) -> Model:
    """The role as it is replayed, with other decisions under these names."""
    decisions = {decision.__name__: decision for decision in DECISIONS} | other
    return Model(
        state=state, decode=decode, decisions={name: decision for name, decision in decisions.items() if decision}
    )


def a_pod(name: str = "a", version: int = 1, **parts: Any) -> Manifest:
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"node": "n"}} | parts


class Role:
    """The role at work."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.broker.declare(common_topology())
        self.store = Store()
        bus = MemoryBus(self.broker, user="manager")
        self.decide = Decider(self.store, Recorder(bus, SOURCE, registry=CollectorRegistry()))

    @asynccontextmanager
    async def recorded(self) -> AsyncIterator[None]:
        async with self.decide.recording():
            self.decide.begin()
            yield

    @property
    def records(self) -> list[Record]:
        return list(self.broker.journal)


def replay(
    records: list[Record], *, state: Callable[[], Store] = Store, **other: Callable[..., Any]
) -> tuple[Replayer, list[Replayed]]:
    """The decisions, made again."""
    replayer = Replayer({"manager": model(state, **other)})
    return replayer, [made for record in records for made in replayer.feed(record)]
