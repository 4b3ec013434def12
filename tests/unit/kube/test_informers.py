"""Caches while definitions are missing, come, go and are replaced: a removal means that somebody deleted the object."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from slicebus.kube.cache import Cache, Change
from slicebus.kube.client import KubeClient
from slicebus.kube.informers import DefinitionLost, Informers
from slicebus.kube.resources import CRDS, GONE, JOBS, NAMESPACES, RAYCLUSTERS, WORKLOADS, Resource
from slicebus.kube.transport import Answer, Request
from slicebus.proto.errors import NotFoundError, UnavailableError
from slicebus.sandbox.apiserver.api import Api
from slicebus.sandbox.apiserver.inprocess import InProcessTransport
from unit.kube.loop_time import LoopTime
from unit.kube.servers import DEFINITIONS

Manifest = dict[str, Any]
NAMESPACE = "team"
MISSING = "the definition rayclusters.ray.io is missing"


class Guarded(InProcessTransport):
    """A server that allows not everything."""

    def __init__(self) -> None:
        self.api = Api()
        super().__init__(self.api, host="here")
        self.forbids: set[str] = set()
        """Beginnings of paths."""
        self.answers: dict[str, Answer] = {}
        """What is answered, by the beginnings of paths."""
        self.cancels: set[str] = set()
        """Paths of which one request each ends as a library ends a wait."""
        self.looked_up: list[str] = []
        """The names of the definitions that were read."""

    async def request(self, request: Request) -> Answer:
        folder, _, name = request.path.rpartition("/")
        if folder == CRDS.path():
            self.looked_up.append(name)
        self._cancel(request)
        if any(request.path.startswith(path) for path in self.forbids):
            return Answer(403, b'{"message": "no", "reason": "Forbidden"}')
        for path, answer in self.answers.items():
            if request.path.startswith(path):
                return answer
        return await super().request(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        self._cancel(request)
        async with super().stream(request) as lines:
            yield lines

    def _cancel(self, request: Request) -> None:
        called = f"{request.path}{'?watch' if 'watch' in request.query else ''}"
        if called in self.cancels:
            self.cancels.remove(called)
            raise asyncio.CancelledError


class Kept:
    """One cache, with the callbacks of its role."""

    def __init__(self, resource: Resource, *, optional: bool = True, namespaces: tuple[str, ...] = ()) -> None:
        self.server = Guarded()
        self.client = KubeClient(self.server)
        self.resource = resource
        self.cache = Cache()
        self.unserved: dict[str, str] = {}
        self.definitions: dict[str, str] = {}
        self.lost_as: list[tuple[str | None, str | None]] = []
        """Why the kind was unserved, and by which definition, when the cache lost each object."""
        self.served: list[str] = []
        self.informers = Informers(
            self.client,
            optional=[resource] if optional else [],
            unserved=self.unserved,
            definitions=self.definitions,
            namespaces=namespaces,
            fits=self._fits,
        )
        self.misfit = ""
        """Why the kind is served and left out all the same."""
        self.informers.on_served(lambda found: self.served.append(found.kind))
        self.cache.subscribe(self._note)
        self.task: asyncio.Task[None] | None = None

    async def _fits(self, resource: Resource) -> str:
        return self.misfit

    def _note(self, change: Change) -> None:
        if change.new is None:
            self.lost_as.append((self.unserved.get(self.resource.kind), self.definitions.get(self.resource.kind)))

    async def define(self, resource: Resource | None = None) -> None:
        for definition in DEFINITIONS:
            if definition["metadata"]["name"] == (resource or self.resource).definition:
                await self.client.create(CRDS, definition)

    async def undefine(self) -> None:
        await self.client.delete(CRDS, self.resource.definition)

    async def make(self, *names: str) -> None:
        for name in names:
            await self.client.create(self.resource, an_object(self.resource, name))

    @property
    def names(self) -> set[str]:
        return {manifest["metadata"]["name"] for manifest in self.cache.all()}

    async def until(self, seen: Callable[[], object]) -> None:
        """Let time pass until something is seen."""
        for _ in range(2000):
            if seen():
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"not seen: {self.names}, {self.unserved}, {self.informers.awaited}")


def an_object(resource: Resource, name: str) -> Manifest:
    metadata = {"name": name, "namespace": NAMESPACE}
    spec: Manifest = {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": []}}}}
    if resource == WORKLOADS:
        spec = {}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def owned(manifest: Manifest, kind: str) -> Manifest:
    owner = {"apiVersion": "v1", "kind": kind, "name": "train", "uid": "uid-train", "controller": True}
    return manifest | {"metadata": manifest["metadata"] | {"ownerReferences": [owner]}}


@asynccontextmanager
async def kept(resource: Resource = RAYCLUSTERS, *, optional: bool = True, defined: bool = True) -> AsyncIterator[Kept]:
    """A cache that is being kept."""
    made = Kept(resource, optional=optional)
    await made.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    if defined and resource.is_custom:
        await made.define()
    made.task = asyncio.create_task(made.informers.run(resource, made.cache))
    try:
        yield made
    finally:
        made.task.cancel()
        await asyncio.gather(made.task, return_exceptions=True)


async def test_a_kind_that_is_not_as_it_is_declared_is_left_out_until_it_is(jumping: LoopTime) -> None:
    made = Kept(RAYCLUSTERS)
    await made.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await made.define()
    await made.make("a")
    made.misfit = "the schema has no spec.replicaz"
    task = asyncio.create_task(made.informers.run(RAYCLUSTERS, made.cache))
    await made.until(made.cache.synced.is_set)
    assert made.unserved == {"RayCluster": "the schema has no spec.replicaz"}
    assert made.informers.left_out == ["RayCluster: the schema has no spec.replicaz"]
    assert (made.names, made.lost_as) == (set(), [])
    made.misfit = ""
    await made.until(lambda: made.served == ["RayCluster"])
    assert (made.names, made.unserved) == ({"a"}, {})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_kind_is_left_out_until_its_definition_comes(jumping: LoopTime) -> None:
    async with kept(defined=False) as ray:
        await ray.cache.synced.wait()
        assert (ray.unserved, ray.definitions, ray.names) == ({"RayCluster": MISSING}, {"RayCluster": GONE}, set())
        assert ray.informers.left_out == [f"RayCluster: {MISSING}"]
        await asyncio.sleep(90)
        await ray.define()
        await ray.make("one")
        await ray.until(lambda: not ray.unserved)
        assert (ray.names, ray.served, ray.informers.left_out) == ({"one"}, ["RayCluster"], [])
        assert ray.definitions["RayCluster"] != GONE
        assert ray.cache.synced.is_set()


@pytest.mark.parametrize("called", ["", "?watch"])
async def test_a_watch_that_a_library_cancels_is_begun_again(called: str, jumping: LoopTime) -> None:
    async with kept(defined=False) as ray:
        ray.server.cancels = {f"{RAYCLUSTERS.path()}{called}"}
        await ray.define()
        await ray.until(lambda: not ray.server.cancels)
        await ray.make("one")
        await ray.until(lambda: ray.names == {"one"})


async def test_objects_that_go_with_their_definition_are_known_to(jumping: LoopTime) -> None:
    async with kept() as ray:
        await ray.make("one", "two")
        await ray.until(lambda: len(ray.names) == 2)
        await ray.undefine()
        await ray.until(lambda: not ray.names)
        assert ray.lost_as == [(MISSING, GONE)] * 2
        await ray.define()
        await ray.until(lambda: not ray.unserved)
        await ray.make("three")
        await ray.until(lambda: ray.names == {"three"})


async def test_a_deleted_object_goes_at_once(jumping: LoopTime) -> None:
    async with kept() as ray:
        await ray.make("one", "two")
        await ray.until(lambda: len(ray.names) == 2)
        at = jumping.now
        await ray.client.delete(RAYCLUSTERS, "one", NAMESPACE)
        await ray.until(lambda: ray.names == {"two"})
        assert ray.lost_as == [(None, ray.definitions["RayCluster"])]
        assert jumping.now - at < 0.5


async def test_an_owned_object_goes_only_after_its_owners_definition_is_confirmed(jumping: LoopTime) -> None:
    async with kept() as ray:
        await ray.define(WORKLOADS)
        workloads, seen = Cache(), list[bool]()
        workloads.subscribe(lambda change: seen.append("RayCluster" in ray.unserved) if change.new is None else None)
        task = asyncio.create_task(ray.informers.run(WORKLOADS, workloads, owners=[RAYCLUSTERS, JOBS]))
        await ray.client.create(WORKLOADS, owned(an_object(WORKLOADS, "slice"), "RayCluster"))
        await ray.until(lambda: len(workloads))
        at = jumping.now
        await ray.undefine()
        await ray.client.delete(WORKLOADS, "slice", NAMESPACE)
        await ray.until(lambda: not len(workloads))
        assert seen == [True]
        assert jumping.now - at < 5, "nobody waits until the watch has ended"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_definition_of_a_kind_that_owns_none_of_what_goes_is_not_asked_for(jumping: LoopTime) -> None:
    async with kept() as ray:
        await ray.define(WORKLOADS)
        workloads = Cache()
        task = asyncio.create_task(ray.informers.run(WORKLOADS, workloads, owners=[RAYCLUSTERS, JOBS]))
        await ray.client.create(WORKLOADS, owned(an_object(WORKLOADS, "slice"), "Job"))
        await ray.until(lambda: len(workloads))
        ray.server.looked_up.clear()
        await ray.client.delete(WORKLOADS, "slice", NAMESPACE)
        await ray.until(lambda: not len(workloads))
        assert ray.server.looked_up == [WORKLOADS.definition]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_definition_that_was_replaced_in_a_moment_has_lost_its_objects_too(jumping: LoopTime) -> None:
    async with kept() as ray:
        await ray.make("one")
        await ray.until(lambda: ray.names)
        before = ray.definitions["RayCluster"]
        await ray.undefine()
        await ray.define()
        await ray.until(lambda: ray.unserved)
        assert ray.definitions["RayCluster"] not in (before, GONE), "there may be objects that nobody has listed"
        await ray.until(lambda: ray.served)
        assert ray.lost_as == [("the definition rayclusters.ray.io was replaced", GONE)]
        assert ray.definitions["RayCluster"] not in (before, GONE)


async def test_a_role_waits_for_a_required_definition(jumping: LoopTime) -> None:
    async with kept(WORKLOADS, optional=False, defined=False) as workloads:
        await asyncio.sleep(90)
        assert workloads.informers.awaited == ["the definition workloads.kueue.x-k8s.io is missing"]
        assert not workloads.cache.synced.is_set()
        await workloads.define()
        await workloads.cache.synced.wait()
        assert (workloads.informers.awaited, workloads.unserved, workloads.served) == ([], {}, [])


async def test_a_lost_required_definition_ends_the_role(jumping: LoopTime) -> None:
    async with kept(WORKLOADS, optional=False) as workloads:
        await workloads.make("one")
        await workloads.until(lambda: workloads.names)
        await workloads.undefine()
        assert workloads.task is not None
        with pytest.raises(DefinitionLost, match="the definition workloads"):
            await workloads.task
        assert (workloads.names, workloads.lost_as) == ({"one"}, []), "nothing was taken as deleted"


@pytest.mark.parametrize("resource", [RAYCLUSTERS, JOBS], ids=lambda resource: resource.plural)
async def test_a_forbidden_resource_is_left_out_by_name_and_keeps_its_cache(
    jumping: LoopTime, resource: Resource
) -> None:
    async with kept(resource) as made:
        await made.cache.synced.wait()
        made.server.forbids.add(resource.path())
        # The watch that it has is ended, as by a restart.
        made.server.api.store.forget()
        await made.until(lambda: made.unserved)
        assert made.unserved == {resource.kind: f"{resource.plural} may not be read: 403: no"}
        assert made.definitions.get(resource.kind) != GONE
        made.server.forbids.clear()
        await made.until(lambda: not made.unserved)


async def test_a_role_waits_for_a_required_resource_that_is_forbidden(jumping: LoopTime) -> None:
    made = Kept(WORKLOADS, optional=False)
    await made.define()
    made.server.forbids.add(WORKLOADS.path())
    task = asyncio.create_task(made.informers.run(WORKLOADS, made.cache))
    await made.until(lambda: made.informers.awaited)
    assert made.informers.awaited == ["workloads may not be read: 403: no"]
    made.server.forbids.clear()
    await made.cache.synced.wait()
    assert made.informers.awaited == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


OF_A_MOMENT = {
    "unserved": Answer(404, b"404 page not found"),
    "refused": Answer(400, b'{"message": "a proxy says no", "reason": "BadRequest"}'),
    "gone": Answer(410, b'{"message": "too old", "reason": "Expired"}'),
}


@pytest.mark.parametrize("answer", OF_A_MOMENT.values(), ids=OF_A_MOMENT.keys())
async def test_an_answer_of_a_moment_about_definitions_ends_no_role(jumping: LoopTime, answer: Answer) -> None:
    async with kept(WORKLOADS, optional=False) as made:
        await made.cache.synced.wait()
        await made.make("a")
        await made.until(lambda: made.names == {"a"})
        made.server.answers = dict.fromkeys((CRDS.path(), WORKLOADS.path()), answer)
        made.server.api.store.forget()
        await asyncio.sleep(60)
        assert made.task is not None
        assert (made.task.done(), made.names) == (False, {"a"})
        made.server.answers.clear()
        await made.make("b")
        await made.until(lambda: made.names == {"a", "b"})


@pytest.mark.parametrize("answer", OF_A_MOMENT.values(), ids=OF_A_MOMENT.keys())
async def test_a_role_that_begins_outlasts_an_answer_of_a_moment(jumping: LoopTime, answer: Answer) -> None:
    made = Kept(WORKLOADS, optional=False)
    await made.define()
    made.server.answers[CRDS.path()] = answer
    task = asyncio.create_task(made.informers.run(WORKLOADS, made.cache))
    await asyncio.sleep(60)
    assert not task.done()
    made.server.answers.clear()
    await made.until(made.cache.synced.is_set)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_without_the_right_to_read_definitions_discovery_decides(jumping: LoopTime) -> None:
    made = Kept(RAYCLUSTERS)
    made.server.forbids.add(CRDS.path())
    task = asyncio.create_task(made.informers.run(RAYCLUSTERS, made.cache))
    await made.until(lambda: made.unserved)
    assert made.unserved == {"RayCluster": "the definition rayclusters.ray.io is missing or going"}
    made.server.forbids.clear()
    await made.define()
    made.server.forbids.add(CRDS.path())
    await made.until(lambda: not made.unserved)
    await made.informers.confirm(RAYCLUSTERS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_absence_is_evidence_only_where_the_definition_stands(jumping: LoopTime) -> None:
    async with kept() as ray:
        await ray.cache.synced.wait()
        await ray.informers.confirm(RAYCLUSTERS)
        await ray.informers.confirm(JOBS)
        await ray.undefine()
        with pytest.raises(UnavailableError, match="is missing"):
            await ray.informers.confirm(RAYCLUSTERS)


async def test_a_version_that_is_not_served_is_no_definition_that_has_gone(jumping: LoopTime) -> None:
    made = Kept(RAYCLUSTERS)
    [definition] = [found for found in DEFINITIONS if found["metadata"]["name"] == RAYCLUSTERS.definition]
    [version] = definition["spec"]["versions"]
    older = definition | {"spec": definition["spec"] | {"versions": [version | {"name": "v1alpha1"}]}}
    await made.client.create(CRDS, older)
    task = asyncio.create_task(made.informers.run(RAYCLUSTERS, made.cache))
    await made.until(lambda: made.unserved)
    assert made.unserved == {"RayCluster": "rayclusters are not served as ray.io/v1"}
    assert made.definitions["RayCluster"] != GONE
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    with pytest.raises(NotFoundError):
        await made.client.list(RAYCLUSTERS)


async def test_only_the_named_namespaces_are_listed_and_watched(jumping: LoopTime) -> None:
    made = Kept(RAYCLUSTERS, namespaces=(NAMESPACE, "second"))
    for name in (NAMESPACE, "second", "third"):
        await made.client.create(NAMESPACES, {"metadata": {"name": name}})
    await made.define()
    # Without the right to list all of them.
    made.server.forbids |= {f"{RAYCLUSTERS.path()}?", RAYCLUSTERS.path("third")}
    for namespace in (NAMESPACE, "second"):
        found = an_object(RAYCLUSTERS, f"of-{namespace}")
        await made.client.create(RAYCLUSTERS, found | {"metadata": found["metadata"] | {"namespace": namespace}})
    task = asyncio.create_task(made.informers.run(RAYCLUSTERS, made.cache))
    await made.cache.synced.wait()
    assert made.names == {f"of-{NAMESPACE}", "of-second"}
    await made.make("new")
    await made.until(lambda: "new" in made.names)
    await made.client.delete(RAYCLUSTERS, "of-second", "second")
    await made.until(lambda: made.names == {f"of-{NAMESPACE}", "new"})
    assert not made.unserved
    made.server.forbids.add(RAYCLUSTERS.path("second"))
    await made.undefine()
    await made.until(lambda: made.unserved)
    await made.define()
    await asyncio.sleep(90)
    assert "may not be read" in made.unserved["RayCluster"]
    made.server.forbids.clear()
    await made.until(lambda: not made.unserved)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
