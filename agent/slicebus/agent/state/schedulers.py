"""The scheduler backends of the agent's cluster, and the objects that they need."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from slicebus.agent.state import annotations
from slicebus.kube.cache import Cache
from slicebus.kube.resources import Resource
from slicebus.proto.messages import Manifest
from slicebus.slices import schedulers
from slicebus.slices.api import api_names
from slicebus.slices.schedulers import NO_PROFILES, Profile, SchedulerBackend


class RefusedObject(msgspec.Struct, frozen=True):
    """An object that the API server did not let the agent make."""

    since_s: float
    """When it was refused, in the process' own time."""
    message: str = ""
    """The server's error message."""


def name_of(resource: Resource) -> str:
    """The name of a resource in the tables: its kind alone would be ambiguous between groups and versions."""
    return f"{resource.definition}/{resource.version}"


class Schedulers:
    """The backends that the agent's profiles enable, and whether each can be used here."""

    def __init__(
        self,
        profiles: Sequence[Profile] = NO_PROFILES,
        *,
        unserved: Mapping[str, str],
        forbidden: Mapping[str, str],
        caches: Mapping[Resource, Cache],
    ) -> None:
        """All arguments are live mappings. `unserved` has the reason for each resource that is not served, by its name;
        `forbidden` what the agent may not do for a backend, by the backend's name. `caches` has the newest version of a
        resource first."""
        self.profiles = profiles
        """The profiles of the backends; that of jobs which choose none comes first."""
        self._unserved = unserved
        self._forbidden = forbidden
        self._caches = caches

    @property
    def default(self) -> str:
        """The backend of jobs that choose none."""
        return self.profiles[0].name

    @property
    def names(self) -> list[str]:
        """The enabled backends, that of jobs which choose none first."""
        return [profile.name for profile in self.profiles]

    @property
    def usable(self) -> list[str]:
        """The enabled backends whose definitions are served, and for which the agent has its rights."""
        return [name for name in self.names if not self.why_unusable(name)]

    def backend(self, name: str) -> SchedulerBackend | None:
        """An enabled backend, in the version that is served; None for any other."""
        profile = next((candidate for candidate in self.profiles if candidate.name == name), None)
        return schedulers.init(profile, served=self._serves) if profile is not None else None

    def why_unusable(self, name: str) -> str:
        """Why an enabled backend cannot be used; empty where it can."""
        backend = self.backend(name)
        needed = (*backend.makes, *backend.reads) if backend is not None else ()
        missing = [self._unserved[name_of(resource)] for resource in needed if not self._serves(resource)]
        return "; ".join([*missing, *filter(None, [self._forbidden.get(name)])])

    def find(self, resource: Resource, name: str, namespace: str) -> Manifest | None:
        """An object of a backend, whoever made it."""
        return self._caches[resource].get(namespace if resource.namespaced else "", name)

    def made_for(self, job: Manifest) -> Iterator[tuple[Resource, Manifest]]:
        """The objects that the agent has made for a worker's job. One that is served in several versions comes once, in
        that which its backend uses."""
        uid, seen = job["metadata"]["uid"], set[str]()
        key = by_job(job["kind"], job["metadata"]["namespace"], job["metadata"]["name"])
        for resource, cache in self._caches.items():
            if resource.definition in seen or not (resource.namespaced and self._serves(resource)):
                continue
            seen.add(resource.definition)
            for manifest in cache.by(BY_JOB, key):
                if annotations.annotation(manifest, api_names.JOB_UID_ANNOTATION) == uid:
                    yield resource, manifest

    def _serves(self, resource: Resource) -> bool:
        return name_of(resource) not in self._unserved


BY_JOB = "job"
"""The index of the objects by the job that they were made for."""


def by_job(kind: str, namespace: str, name: str) -> str:
    """The key of a job in the index `BY_JOB`."""
    return f"{namespace}/{kind}/{name}"
