"""Finds scheduler backends by name."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names
from slicebus.slices.api.resource import Resource
from slicebus.slices.schedulers.base import Profile, SchedulerBackend
from slicebus.slices.schedulers.default import Default
from slicebus.slices.schedulers.grove import Grove
from slicebus.slices.schedulers.kai import Kai
from slicebus.slices.schedulers.kube import VERSIONS, Kube
from slicebus.slices.schedulers.volcano import Volcano

_BACKENDS: Mapping[str, Callable[[Profile], SchedulerBackend]] = {
    Default.name: Default,
    Kube.name: Kube,
    Kai.name: Kai,
    Volcano.name: Volcano,
    Grove.name: Grove,
}
NAMES: tuple[str, ...] = tuple(_BACKENDS)
NO_PROFILES: tuple[Profile, ...] = (Profile(Default.name),)
"""The profiles of an agent whose settings have none."""


def chosen_by(job: Manifest) -> str:
    """The backend that a job's label names; empty for that of its cluster."""
    name: str = (job["metadata"].get("labels") or {}).get(api_names.SCHEDULER_LABEL, "")
    return name


def is_gang(job: Manifest) -> bool:
    """Whether a job's label names a backend whose pods start together."""
    return chosen_by(job) not in ("", Default.name)


def profiles_of(text: str) -> tuple[Profile, ...]:
    """Decode the profiles of an agent's settings, JSON; at least one. Raises ValueError for text that nobody can read,
    and for a backend that is unknown or has two profiles."""
    profiles = msgspec.json.decode(text, type=tuple[Profile, ...]) if text else ()
    names = [profile.name for profile in profiles]
    for name in names:
        if name not in NAMES:
            raise ValueError(f"there is no scheduler backend {name!r}, only {', '.join(NAMES)}")
        if names.count(name) > 1:
            raise ValueError(f"the scheduler backend {name!r} has two profiles")
    return profiles or NO_PROFILES


def init(profile: Profile, *, served: Callable[[Resource], bool] = lambda _: True) -> SchedulerBackend:
    """The backend of a profile, in the newest version that the cluster serves. Raises KeyError for an unknown name."""
    if profile.name == Kube.name:
        backends = [Kube(profile, version) for version in VERSIONS]
        return next((backend for backend in backends if all(map(served, backend.makes))), backends[-1])
    return _BACKENDS[profile.name](profile)


def every_version(profile: Profile) -> Iterable[SchedulerBackend]:
    """The backend of a profile in each version that it can use, the newest first."""
    return [Kube(profile, version) for version in VERSIONS] if profile.name == Kube.name else [init(profile)]


def every_resource() -> tuple[Resource, ...]:
    """Every resource that any backend makes or reads, in every version."""
    backends = (backend for name in NAMES for backend in every_version(Profile(name)))
    return tuple(dict.fromkeys(resource for backend in backends for resource in (*backend.makes, *backend.reads)))
