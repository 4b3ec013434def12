"""A heartbeat is as large as its sender likes: what the manager keeps of it is bounded."""

from typing import Any

import msgspec
import pytest
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


def kept_of(heartbeat: Heartbeat) -> Heartbeat:
    return msgspec.json.decode(reduced(a_store(), msgspec.json.encode(heartbeat)), type=Heartbeat)


def test_what_was_asked_for_stays() -> None:
    room = {"": {"cpu": "4"}, "gpu": {"nvidia.com/gpu": "8"}}
    heartbeat = Heartbeat(
        capacity=room,
        used=room,
        ours={},
        terms="7",
        said_s=1.5,
        lacking={"team": "NotFound"},
        container_defaults={"team": {"cpu": "100m"}},
        pod_overheads={"kata": {"memory": "1Gi"}},
        policy={"tolerationKeys": [f"example.com/{number}" for number in range(100)]},
        scheduler_backends=["kai"],
        jobs=3,
    )
    assert kept_of(heartbeat) == heartbeat
    assert kept_of(Heartbeat()) == Heartbeat()


def test_what_was_not_asked_for_goes() -> None:
    flavors = {f"flavor-{number}": {"cpu": "1"} for number in range(10_000)}
    resources = {f"example.com/r-{number}": "1" for number in range(10_000)}
    long = {"x" * 1000: "1", "cpu": "1" * 1000, "memory": "1Gi"}
    heartbeat = Heartbeat(
        capacity=flavors | {"": resources, "gpu": long},
        used=flavors,
        ours=flavors,
        terms="7" * 100_000,
        lacking={f"n-{number}": "NotFound" for number in range(10_000)} | {"team": "Terminating"},
        container_defaults=flavors | {"team": resources},
        pod_overheads=flavors,
        policy={"tolerationKeys": [f"example.com/{number}" for number in range(1000)]},
        scheduler_backends=["x" * 100_000, *(f"b-{number}" for number in range(10_000))],
    )
    kept = kept_of(heartbeat)
    assert kept.capacity["gpu"] == {"memory": "1Gi"}
    assert len(kept.capacity[""]) == 100
    assert (kept.capacity.keys(), kept.used, kept.ours, kept.terms) == ({"", "gpu"}, {}, {}, UNSET)
    assert kept.lacking == {"team": "Terminating"}
    assert isinstance(kept.container_defaults, dict)
    assert (kept.container_defaults.keys(), len(kept.container_defaults["team"])) == ({"team"}, 100)
    assert isinstance(kept.pod_overheads, dict)
    assert (len(kept.pod_overheads), len(kept.scheduler_backends)) == (100, 15)
    assert kept.policy is UNSET
    assert len(msgspec.json.encode(kept)) < 16 * 1024 < len(msgspec.json.encode(heartbeat))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"capacity": 5}', b'{"capacity": {"gpu": [1]}}', b'{"lacking": "\xff"}', b'{"a":' * 9000],
    ids=["nothing", "half", "a list", "a number", "a list in it", "no text", "too deep"],
)
def test_what_is_no_heartbeat_stays_for_whoever_reads_it(body: bytes) -> None:
    assert reduced(a_store(), body) == body


def test_what_it_does_not_know_goes() -> None:
    assert reduced(a_store(), b'{"jobs": 3, "more": {"a": 1}}') == b'{"jobs":3}'
