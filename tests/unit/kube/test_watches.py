"""Watches of the embedded server against the store alone."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import CONFIGMAPS, CRDS, SECRETS, WORKLOADS, Resource
from slicebus.sandbox.apiserver import watches
from slicebus.sandbox.apiserver.kinds import Served
from slicebus.sandbox.apiserver.status import ApiError
from slicebus.sandbox.apiserver.store import ObjectStore, key_of
from unit.kube.loop_time import LoopTime, settle

Manifest = dict[str, Any]


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore(history=4)


def served(store: ObjectStore, resource: Resource) -> Served:
    return store.served(resource.group, resource.version, resource.plural)


def put(store: ObjectStore, resource: Resource, name: str) -> None:
    store.put(key_of(served(store, resource), "default", name), {"metadata": {"name": name, "uid": name}})


def watch(store: ObjectStore, resource: Resource, *, timeout_s: float) -> AsyncIterator[Manifest]:
    return watches.events(
        store,
        served(store, resource),
        version=store.version,
        matches=lambda _: True,
        bookmarks=True,
        timeout_s=timeout_s,
    )


async def test_other_resources_do_not_age_a_watch(store: ObjectStore) -> None:
    watching = watch(store, SECRETS, timeout_s=5.0)
    first = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    for name in "abcdef":
        put(store, CONFIGMAPS, name)
    put(store, SECRETS, "g")
    assert (await first)["object"]["metadata"]["name"] == "g"


async def test_a_change_at_the_moment_of_a_bookmark_is_not_skipped(store: ObjectStore, loop_time: LoopTime) -> None:
    watching = watch(store, SECRETS, timeout_s=45.0)
    first = asyncio.ensure_future(anext(watching))
    await settle()
    # Both fall due at once. Timers run before whatever they wake: the change comes between the time-out and the watch.
    asyncio.get_running_loop().call_later(30.5, put, store, SECRETS, "a")
    await loop_time.advance(31.0)
    assert (await first)["type"] == "ADDED"


async def test_a_server_that_starts_again_ends_its_watches(store: ObjectStore) -> None:
    put(store, SECRETS, "a")
    watching = watch(store, SECRETS, timeout_s=5.0)
    first = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    store.forget()
    with pytest.raises(ApiError, match="too old resource version"):
        await first


async def test_a_server_that_starts_again_ends_the_watches_of_a_removed_definition(store: ObjectStore) -> None:
    [definition] = [one for one in custom_resource_definitions() if one["spec"]["names"]["plural"] == WORKLOADS.plural]
    key = key_of(served(store, CRDS), "", definition["metadata"]["name"])
    store.put(key, definition | {"metadata": definition["metadata"] | {"uid": "a"}})
    watching = watch(store, WORKLOADS, timeout_s=5.0)
    first = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    store.remove(key)
    store.forget()
    with pytest.raises(ApiError, match="too old resource version"):
        await first
