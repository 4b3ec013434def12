"""What a cluster adds to pods, as its agent tells it."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec import UNSET

from slicebus.agent.act.pod_additions import Additions, PodAdditionsWatch
from slicebus.agent.decide.cluster.pod_additions import container_defaults, pod_overheads
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import LIMITRANGES, NAMESPACES
from slicebus.proto.messages import Terms
from slicebus.sandbox.apiserver import EmbeddedApiServer
from support.refusing import FORBIDDEN, refusing
from support.waiting import PATIENCE_S, eventually

Manifest = dict[str, Any]


def a_limit_range(*items: Manifest, namespace: str = "team") -> Manifest:
    return {"metadata": {"namespace": namespace, "name": "l"}, "spec": {"limits": list(items)}}


def an_item(type: str = "Container", **fields: Any) -> Manifest:
    return {"type": type} | fields


DEFAULTS: dict[str, tuple[list[Manifest], dict[str, Any]]] = {
    "none": ([], {}),
    "a default request": ([a_limit_range(an_item(defaultRequest={"cpu": "4"}))], {"team": {"cpu": "4"}}),
    "a default limit alone": ([a_limit_range(an_item(default={"cpu": "4"}))], {"team": {"cpu": "4"}}),
    "both": (
        [a_limit_range(an_item(default={"cpu": "4"}, defaultRequest={"cpu": "1", "memory": "1Gi"}))],
        {"team": {"cpu": "1", "memory": "1Gi"}},
    ),
    "of pods": ([a_limit_range(an_item("Pod", max={"cpu": "4"}))], {}),
    "bounds only": ([a_limit_range(an_item(max={"cpu": "4"}))], {}),
    "of a namespace that nobody asks for": ([a_limit_range(an_item(default={"cpu": "4"}), namespace="other")], {}),
    "the larger of several": (
        [
            a_limit_range(an_item(defaultRequest={"cpu": "500m", "memory": "1Gi"})),
            a_limit_range(an_item(defaultRequest={"cpu": "2"}), an_item(defaultRequest={"cpu": "1"})),
        ],
        {"team": {"cpu": "2", "memory": "1Gi"}},
    ),
}


@pytest.mark.parametrize(("found", "expected"), DEFAULTS.values(), ids=DEFAULTS.keys())
def test_what_containers_request_by_default(found: list[Manifest], expected: dict[str, Any]) -> None:
    assert container_defaults(found, {"team"}) == expected


async def test_what_may_not_be_read_is_not_told_until_it_may() -> None:
    """Nothing would say that containers request nothing by default: the manager would charge less."""
    told: list[Additions] = []
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client, AsyncExitStack() as stack:
        await client.create(NAMESPACES, {"metadata": {"name": "team"}})
        await client.create(LIMITRANGES, a_limit_range(an_item(defaultRequest={"cpu": "4"})))
        watch = PodAdditionsWatch(client, namespaces=(), changed=lambda: told.append(watch.known()))
        watch.accept(Terms(version="1", namespaces=["team"]))
        caches = watch._caches.values()
        with refusing(server.api, FORBIDDEN, verbs="GET"):
            group = await stack.enter_async_context(asyncio.TaskGroup())
            watch.start(group)
            stack.callback(ended, asyncio.all_tasks())
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*(cache.synced.wait() for cache in caches))
            assert watch.known() == (UNSET, UNSET)

        async def is_told() -> bool:
            return told[-1:] == [({"team": {"cpu": "4"}}, {})]

        await eventually(is_told, "it is told once it may be read")


def ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        if task.get_name().startswith("watch:"):
            task.cancel()


def test_what_pods_of_a_runtime_class_take() -> None:
    classes = [
        {"metadata": {"name": "plain"}},
        {"metadata": {"name": "kata"}, "overhead": {"podFixed": {"memory": "128Mi", "cpu": "250m"}}},
        {"metadata": {"name": "empty"}, "overhead": {}},
    ]
    assert pod_overheads(classes) == {"kata": {"cpu": "250m", "memory": "128Mi"}}
