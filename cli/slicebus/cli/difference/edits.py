"""The edits of a user's files, and the objects that they are made to: of the cluster, or of an export."""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any

from slicebus.cli import screen
from slicebus.cli.cluster.deciding import asked, take_settings
from slicebus.cli.cluster.reading import configure
from slicebus.cli.documents import documents
from slicebus.kube.cache import key_of
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    LEASES,
    LOCALQUEUES,
    RESOURCEFLAVORS,
    WORKERCLUSTERS,
    WORKLOADPRIORITYCLASSES,
    Resource,
)
from slicebus.manager.permissions import lease_of
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ConfigurationError, ConflictError, ForbiddenError

Manifest = dict[str, Any]
Edit = tuple[Resource, Manifest]
EDITABLE = (CLUSTERQUEUES, COHORTS, LOCALQUEUES, RESOURCEFLAVORS, WORKLOADPRIORITYCLASSES, WORKERCLUSTERS)
"""What an edit may be of."""
_STATUS = "status"
_MERGED = ("labels", "annotations")
_TRIES = 5


def edits_of(files: Collection[str], *, namespace: str) -> list[Edit]:
    """The objects of files, the last one of each name. Raises ConfigurationError for any other kind."""
    found = dict[tuple[Resource, tuple[str, str]], Manifest]()
    for file in files:
        for manifest in documents(file):
            resource, metadata = _editable(manifest, file), manifest["metadata"]
            if resource.namespaced:
                metadata = {"namespace": namespace, **metadata}
            _require_name(manifest | {"metadata": metadata}, resource)
            value = manifest.get("value")
            if resource == WORKLOADPRIORITYCLASSES and (not isinstance(value, int) or isinstance(value, bool)):
                raise ConfigurationError(f"{resource.kind} {metadata['name']} has no value that is a number")
            edited = {**manifest, "metadata": metadata}
            found[resource, key_of(edited)] = edited
    if files and not found:
        raise ConfigurationError("there is nothing in these files")
    return [(resource, manifest) for (resource, _), manifest in found.items()]


def named(store: ManagerStore, names: Iterable[str], edits: Iterable[Edit] = ()) -> list[Edit]:
    """The objects of a store that `ClusterQueue/batch` or `LocalQueue/team-a/main` name. Raises ConfigurationError for
    a name of none, and for one that is among the edits."""
    edited = {(resource, key_of(manifest)) for resource, manifest in edits}
    found = []
    for name in names:
        kind, _, key = name.partition("/")
        namespace, _, own = key.rpartition("/")
        resource = next((each for each in EDITABLE if each.kind == kind and each.namespaced == bool(namespace)), None)
        if resource is None or not own:
            raise ConfigurationError(f"--without {name}: name one as {', '.join(map(_form, EDITABLE))}")
        cache = store.cache_of(resource)
        assert cache is not None
        manifest = cache.get(namespace or None, own)
        if manifest is None:
            raise ConfigurationError(f"--without {name}: there is no such {kind}")
        if (resource, key_of(manifest)) in edited:
            raise ConfigurationError(f"--without {name}: the files have it")
        found.append((resource, manifest))
    return found


def merged(store: ManagerStore, edits: Iterable[Edit]) -> Iterator[Edit]:
    """The objects as they are after the edits: an existing one keeps its status, and labels and annotations that nobody
    names."""
    for resource, manifest in edits:
        metadata, cache = manifest["metadata"], store.cache_of(resource)
        assert cache is not None
        before = cache.get(metadata.get("namespace"), metadata["name"])
        if before is None:
            yield resource, {**manifest, "metadata": {"uid": "", "resourceVersion": "0", **metadata}}
            continue
        kept = {name: {**(before["metadata"].get(name) or {}), **(metadata.get(name) or {})} for name in _MERGED}
        after = {**manifest, "metadata": {**before["metadata"], **kept}}
        yield resource, {**after, _STATUS: before[_STATUS]} if _STATUS in before else after


def unreadable(after: ManagerStore, edits: Iterable[Edit]) -> list[str]:
    """The edited queues and cohorts whose quota makes no sense: they would count as missing."""
    known = {(CLUSTERQUEUES, name) for name in after.quotas.cluster_queues}
    known |= {(COHORTS, cohort.name) for cohort in after.quotas.cohorts}
    names = ((resource, manifest["metadata"]["name"]) for resource, manifest in edits)
    return [f"{each[0].kind} {each[1]}" for each in names if each[0] in (CLUSTERQUEUES, COHORTS) and each not in known]


async def checked(client: KubeClient, store: ManagerStore, edits: Iterable[Edit]) -> list[Edit]:
    """The edits as the API server would store them, which keeps nothing. Raises InvalidError for one that it refuses.
    Those of who may not make them are taken as they are."""
    return [(resource, await _checked(client, store, resource, manifest)) for resource, manifest in edits]


def exported(files: Iterable[str]) -> ManagerStore:
    """The objects of an export, `kubectl get -o yaml` of everything that decides. The manager's Lease says how that is
    set. Raises ConfigurationError for one without queues, and for one with another shape."""
    store, settings = ManagerStore(), None
    caches = {(resource.api_version, resource.kind): (resource, cache) for resource, cache in store.decides_by()}
    for manifest in chain.from_iterable(map(documents, files)):
        kind = str(manifest.get("apiVersion")), str(manifest.get("kind"))
        if kind in caches:
            resource, cache = caches[kind]
            _require_name(manifest, resource)
            cache.put({**manifest, "metadata": {"uid": "", "resourceVersion": "1", **manifest["metadata"]}})
        elif kind == (LEASES.api_version, LEASES.kind) and manifest["metadata"].get("name") == lease_of(0):
            settings = ManagerDecisionSettings.from_lease(manifest)
    with asked("diff"):
        has_queues = bool(store.quotas.cluster_queues)
    if not has_queues:
        raise ConfigurationError("the export has no ClusterQueue that can be read")
    configure(store)
    if store.beside_kueue:
        raise ConfigurationError("a Kueue admits there: only it knows what it would decide")
    take_settings(store, settings, "the export does not say how the manager's decisions are set")
    return store


def _form(resource: Resource) -> str:
    return f"{resource.kind}/NAMESPACE/NAME" if resource.namespaced else f"{resource.kind}/NAME"


def _require_name(manifest: Manifest, resource: Resource) -> None:
    """Raises ConfigurationError for an object without its name, or without its namespace."""
    for field in ("name", *(["namespace"] if resource.namespaced else [])):
        value = manifest["metadata"].get(field)
        if not (isinstance(value, str) and value):
            raise ConfigurationError(f"there is a {resource.kind} without a {field}")


def _editable(manifest: Manifest, file: str) -> Resource:
    kind, version = manifest.get("kind"), manifest.get("apiVersion")
    for resource in EDITABLE:
        if (resource.kind, resource.api_version) == (kind, version):
            return resource
    known = ", ".join(resource.kind for resource in EDITABLE)
    raise ConfigurationError(f"{file}: {version} {kind} is none of {known}")


async def _as_stored(client: KubeClient, resource: Resource, manifest: Manifest) -> Manifest:
    """What the API server would store in place of an object, whose status the manager may write meanwhile."""
    metadata = manifest["metadata"]
    for _ in range(_TRIES):
        try:
            return await client.replace(resource, {**manifest, "metadata": metadata}, dry_run=True)
        except ConflictError:
            present = await client.get(resource, metadata["name"], metadata.get("namespace"))
            metadata = {**metadata, "resourceVersion": present["metadata"]["resourceVersion"]}
    raise ConflictError(f"somebody writes {resource.kind} {metadata['name']} again and again: try it once more")


async def _checked(client: KubeClient, store: ManagerStore, resource: Resource, manifest: Manifest) -> Manifest:
    metadata, cache = manifest["metadata"], store.cache_of(resource)
    assert cache is not None
    try:
        if cache.get(metadata.get("namespace"), metadata["name"]) is not None:
            return await _as_stored(client, resource, manifest)
        new = {name: value for name, value in metadata.items() if name not in ("uid", "resourceVersion")}
        return await client.create(resource, {**manifest, "metadata": new}, dry_run=True)
    except ForbiddenError as error:
        screen.warn(f"not checked by the API server: {error}")
        return manifest
