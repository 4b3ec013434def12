"""One table of what an autoscaler asks for, on Ray's own Kubernetes provider and on its stand-in."""

import importlib.util
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from slicebus.sandbox.controllers.ray_provider import PendingDeletesError, patch_of
from support.missing import skip_or_fail

Manifest = dict[str, Any]
Answer = list[Manifest] | None
"""The patch; None where it is to be asked again."""
_CLUSTER = "train"


class Group(msgspec.Struct, frozen=True):
    """A group with its pods: `a` has `a-0`, `a-1` and so on."""

    name: str = "a"
    replicas: int = 3
    pods: int | None = None
    """None for as many as it wants."""
    least: int = 0
    most: int | None = 10
    hosts: int = 1
    named: tuple[str, ...] = ()
    going: tuple[int, ...] = ()

    def to_manifest(self) -> Manifest:
        found: Manifest = {
            "groupName": self.name,
            "replicas": self.replicas,
            "minReplicas": self.least,
            "numOfHosts": self.hosts,
            "scaleStrategy": {"workersToDelete": list(self.named)} if self.named else {},
        }
        return found | ({} if self.most is None else {"maxReplicas": self.most})

    def to_pods(self) -> list[Manifest]:
        count = self.replicas * self.hosts if self.pods is None else self.pods
        return [pod(f"{self.name}-{n}", self.name, going=n in self.going) for n in range(count)]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a cluster, and the patch."""

    groups: tuple[Group, ...] = (Group(),)
    launch: dict[str, int] = {}
    terminate: tuple[str, ...] = ()
    sizes: dict[int, int] = {}
    """Other replicas, by the number of the group."""
    lists: dict[int, list[str]] = {}
    """Other names, likewise."""
    waits: bool = False

    def patch(self) -> Answer:
        if self.waits:
            return None
        at = "/spec/workerGroupSpecs/{}/{}"
        sizes = [{"op": "replace", "path": at.format(n, "replicas"), "value": size} for n, size in self.sizes.items()]
        return sizes + [
            {"op": "replace", "path": at.format(n, "scaleStrategy"), "value": {"workersToDelete": names}}
            for n, names in self.lists.items()
        ]


def pod(name: str, group: str, *, kind: str = "worker", going: bool = False) -> Manifest:
    labels = {"ray.io/cluster": _CLUSTER, "ray.io/node-type": kind, "ray.io/group": group}
    metadata = {"name": name, "labels": labels} | ({"deletionTimestamp": "2026-01-31T12:00:00Z"} if going else {})
    return {"metadata": metadata, "status": {}, "spec": {}}


ONE, TWO = Group(), Group(hosts=2, replicas=2)
CASES: dict[str, Case] = {
    "more": Case(launch={"a": 2}, sizes={0: 5}),
    "more of one group": Case(groups=(ONE, Group("b", 1)), launch={"b": 1}, sizes={1: 2}),
    "more of both": Case(groups=(ONE, Group("b", 1)), launch={"a": 1, "b": 1}, sizes={0: 4, 1: 2}),
    "more than the most": Case(groups=(Group(most=4),), launch={"a": 3}, sizes={0: 4}),
    "more where the most are there": Case(groups=(Group(most=3),), launch={"a": 1}),
    "more without a most": Case(groups=(Group(most=None),), launch={"a": 30}, sizes={0: 33}),
    "more than a least that is above the size": Case(
        groups=(Group(replicas=1, least=3),), launch={"a": 1}, sizes={0: 4}
    ),
    "more than wanted pods that are not there yet": Case(groups=(Group(pods=1),), launch={"a": 1}, sizes={0: 4}),
    "fewer": Case(terminate=("a-2", "a-0"), sizes={0: 1}, lists={0: ["a-2", "a-0"]}),
    "fewer of both groups": Case(
        groups=(ONE, Group("b", 2)), terminate=("b-1", "a-0"), sizes={0: 2, 1: 1}, lists={0: ["a-0"], 1: ["b-1"]}
    ),
    "fewer than the least": Case(groups=(Group(least=3),), terminate=("a-0",), sizes={0: 2}, lists={0: ["a-0"]}),
    "fewer, of which one has gone": Case(terminate=("a-0", "x"), sizes={0: 2}, lists={0: ["a-0"]}),
    "one that is going": Case(groups=(Group(going=(0,)),), terminate=("a-0",)),
    "one that is going, and another": Case(
        groups=(Group(going=(0,)),), terminate=("a-0", "a-1"), sizes={0: 2}, lists={0: ["a-1"]}
    ),
    "the head": Case(terminate=("head",)),
    "fewer where a user has lowered the size": Case(
        groups=(Group(replicas=1, pods=3),), terminate=("a-0",), sizes={0: 2}, lists={0: ["a-0"]}
    ),
    "more where a user has lowered the size": Case(groups=(Group(replicas=0, pods=3),), launch={"a": 1}, sizes={0: 4}),
    "named, and still there": Case(groups=(Group(named=("a-0",)),), launch={"a": 1}, waits=True),
    "another, while one is named and still there": Case(
        groups=(Group(named=("a-0",)),), terminate=("a-1",), waits=True
    ),
    "another group, while one is named and still there": Case(
        groups=(Group(named=("a-0",)), Group("b", 1)), launch={"b": 1}, waits=True
    ),
    "named, and going": Case(
        groups=(Group(replicas=2, pods=3, named=("a-0",), going=(0,)),), launch={"a": 1}, sizes={0: 3}, lists={0: []}
    ),
    "another, after one that is going": Case(
        groups=(Group(replicas=2, pods=3, named=("a-0",), going=(0,)),),
        terminate=("a-1",),
        sizes={0: 1},
        lists={0: ["a-1"]},
    ),
    "named, and gone": Case(groups=(Group(named=("x",)),), launch={"a": 1}, sizes={0: 4}, lists={0: []}),
    "named in another group, and gone": Case(
        groups=(ONE, Group("b", 1, named=("x",))), launch={"a": 1}, sizes={0: 4}, lists={1: []}
    ),
    "nothing, where one is named and gone": Case(groups=(Group(named=("x",)),), lists={0: []}),
    "nothing": Case(),
    "a replica of two hosts": Case(groups=(TWO,), launch={"a": 2}, sizes={0: 3}),
    "half a replica more": Case(groups=(TWO,), launch={"a": 1}),
    "a replica less": Case(groups=(TWO,), terminate=("a-0", "a-1"), sizes={0: 1}, lists={0: ["a-0", "a-1"]}),
    "half a replica less": Case(groups=(TWO,), terminate=("a-0",), sizes={0: 1}, lists={0: ["a-0"]}),
    "half of two replicas less": Case(groups=(TWO,), terminate=("a-0", "a-2"), sizes={0: 1}, lists={0: ["a-0", "a-2"]}),
    "two hosts, and the most": Case(groups=(Group(hosts=2, most=3),), launch={"a": 4}),
}


def stand_in(case: Case, cluster: Manifest, pods: list[Manifest]) -> Answer:
    try:
        return patch_of(cluster["spec"], pods, launch=case.launch, terminate=case.terminate)
    except PendingDeletesError:
        return None


class Api:
    """Ray's client to the API server, with one cluster."""

    def __init__(self, cluster: Manifest, pods: list[Manifest]) -> None:
        self.patches: list[list[Manifest]] = []
        self._cluster = cluster
        self._pods = pods

    def get(self, path: str) -> Manifest:
        if urlsplit(path).path == "pods":
            return {"metadata": {"resourceVersion": "1"}, "items": self._pods}
        return self._cluster

    def patch(self, path: str, payload: list[Manifest], content_type: str = "") -> Manifest:
        self.patches.append(payload)
        return self._cluster


def ray(case: Case, cluster: Manifest, pods: list[Manifest]) -> Answer:
    """By Ray. A request that is capped is an error for the pods that it does not get; one that has to wait writes
    nothing."""
    if importlib.util.find_spec("ray") is None:
        skip_or_fail("no ray, which has no wheel for this Python")
    from ray.autoscaler.v2.instance_manager.cloud_providers.kuberay.cloud_provider import KubeRayProvider

    api = Api(cluster, pods)
    provider = KubeRayProvider(_CLUSTER, {"namespace": "team"}, None, k8s_api_client=api)
    if case.launch:
        provider.launch(case.launch, "1")
    else:
        provider.terminate(list(case.terminate), "1")
    errors = [text for error in provider.poll_errors() if "maxReplicas" not in (text := str(error))]
    assert [error for error in errors if "Waiting for them to be deleted" not in error] == []
    assert len(api.patches) <= 1
    return None if errors else [change for patch in api.patches for change in patch]


@pytest.mark.parametrize("provider", [stand_in, ray])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_written(case: Case, provider: Callable[[Case, Manifest, list[Manifest]], Answer]) -> None:
    spec = {"workerGroupSpecs": [group.to_manifest() for group in case.groups]}
    pods = [pod("head", "headgroup", kind="head"), *(each for group in case.groups for each in group.to_pods())]
    cluster = {"metadata": {"name": _CLUSTER}, "spec": spec}
    found, wanted = provider(case, cluster, pods), case.patch()
    # Ray deletes and clears in no order of the groups.
    assert sorted(found or [], key=str) == sorted(wanted or [], key=str)
    assert (found is None) is (wanted is None)
