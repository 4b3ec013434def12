"""A heartbeat is as large as its sender likes: what the manager keeps of it is bounded."""

from typing import Any

import msgspec
from msgspec import UNSET

from slicebus.manager.decide.messages.heartbeat_bounds import reduced
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import Heartbeat


def an_object(kind: str, name: str, **metadata: str) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "uid": name, "resourceVersion": "1"} | metadata, "spec": {}}


def a_store() -> ManagerStore:
    store = ManagerStore()
    store.flavors.put(an_object("ResourceFlavor", "gpu"))
    store.local_queues.put(an_object("LocalQueue", "batch", namespace="team"))
    return store


def test_what_was_asked_for_stays() -> None:
    room = {"": {"cpu": "4"}, "gpu": {"nvidia.com/gpu": "8"}}
    heartbeat = Heartbeat(
        capacity=room, used=room, ours={}, lacking={"team": "NotFound"}, scheduler_backends=["kai"], jobs=3
    )
    assert reduced(a_store(), heartbeat) == heartbeat
    assert reduced(a_store(), Heartbeat()).lacking is UNSET


def test_what_was_not_asked_for_goes() -> None:
    flavors = {f"flavor-{number}": {"cpu": "1"} for number in range(10_000)}
    resources = {f"example.com/r-{number}": "1" for number in range(10_000)}
    long = {"x" * 1000: "1", "cpu": "1" * 1000, "memory": "1Gi"}
    heartbeat = Heartbeat(
        capacity=flavors | {"": resources, "gpu": long},
        used=flavors,
        ours=flavors,
        lacking={f"n-{number}": "NotFound" for number in range(10_000)} | {"team": "Terminating"},
        scheduler_backends=["x" * 100_000, *(f"b-{number}" for number in range(10_000))],
    )
    kept = reduced(a_store(), heartbeat)
    assert kept.capacity["gpu"] == {"memory": "1Gi"}
    assert len(kept.capacity[""]) == 100
    assert (kept.capacity.keys(), kept.used, kept.ours) == ({"", "gpu"}, {}, {})
    assert kept.lacking == {"team": "Terminating"}
    assert len(msgspec.json.encode(kept)) < 16 * 1024 < len(msgspec.json.encode(heartbeat))
