"""Knows what a recording has of a cache, and what resources are called in one."""

from slicebus.journal.object_diffs import DiffWriter
from slicebus.journal.redaction import Redactor
from slicebus.kube.cache import Cache, Key, key_of
from slicebus.kube.resources import Resource
from slicebus.proto.messages import Manifest


def resource_name(resource: Resource) -> str:
    """The name of a resource in a recording: `pods`, `jobs.batch`; with the version, as `kubectl` takes it, where
    Kubernetes itself may serve several."""
    if resource.group and not resource.is_custom and resource.version != "v1":
        return f"{resource.plural}.{resource.version}.{resource.group}"
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


class RecordedCache:
    """Knows what is recorded of a cache: its objects, apart from those that are left out."""

    def __init__(self, resource: Resource, cache: Cache, redactor: Redactor) -> None:
        self.resource = resource
        self.diffs = DiffWriter(resource_name(resource), redactor)
        self._cache = cache
        self._left_out: set[Key] = set()

    def objects(self) -> list[Manifest]:
        """The objects that are recorded."""
        return [manifest for manifest in self._cache.all() if not self.leaves_out(manifest)]

    def leaves_out(self, manifest: Manifest) -> bool:
        """Whether an object is left out."""
        return key_of(manifest) in self._left_out

    def leave_out(self, manifest: Manifest) -> None:
        """Record nothing about an object."""
        self._left_out.add(key_of(manifest))

    def forget(self, manifest: Manifest) -> bool:
        """Leave an object out no longer, and say whether it was left out."""
        was_left_out = self.leaves_out(manifest)
        self._left_out.discard(key_of(manifest))
        return was_left_out

    def take_in(self, namespace: str | None, name: str) -> Manifest | None:
        """Leave an object out no longer, and return it; None for one that was not left out."""
        key = namespace or "", name
        if key not in self._left_out:
            return None
        self._left_out.discard(key)
        return self._cache.get(*key)
