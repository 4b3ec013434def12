"""Writes objects into a recording as differences from the version before, and puts them together again.

The writer remembers the version before as hashes. Comparing with the version itself would read all of it again, and it
left the processor's caches long ago.
"""

from collections.abc import Callable

import orjson
from msgspec import Raw

from slicebus.journal.recording import Gone, Put
from slicebus.journal.redaction import Redactor
from slicebus.kube.cache import Key, Manifest, key_of
from slicebus.kube.packed import encoded_part
from slicebus.proto.errors import InvalidError

_METADATA, _ANNOTATIONS, _STATUS = "metadata", "annotations", "status"
_LARGE = 1024
"""The bytes of a status, or of an annotation, that is recorded whatever share is left."""
HasRoom = Callable[[int], bool]
"""Whether so many bytes of an object are recorded."""


class DiffWriter:
    """Writes the objects of one resource as differences."""

    def __init__(self, resource: str, redactor: Redactor) -> None:
        self._resource = resource
        self._redactor = redactor
        self._hashes: dict[Key, tuple[str, dict[str, int]]] = {}
        """By namespace and name: the UID, and the hash of each part, such as `spec`."""

    def put(self, manifest: Manifest, *, has_room: HasRoom | None = None) -> Put:
        """The difference from the last version. Raises any of `UNWRITABLE`: the next is then written in full.

        What `has_room` has no room for is left out: a large status, and large annotations.
        """
        key, uid = key_of(manifest), manifest["metadata"]["uid"]
        known, before = self._hashes.pop(key, (uid, {}))
        parts = {name: encoded_part(manifest, name) for name in manifest}
        hashes = {name: hash(part) for name, part in parts.items() if name != "metadata"}
        same = tuple(name for name in hashes if hashes[name] == before.get(name)) if known == uid else ()
        changed = {
            name: _without_secrets(manifest, name, part, self._redactor)
            for name, part in parts.items()
            if name not in same
        }
        large = _large(manifest, changed)
        cut = tuple(large) if large and has_room is not None and not has_room(sum(large.values())) else ()
        if _STATUS in cut:
            del changed[_STATUS]
        if _METADATA in cut:
            changed[_METADATA] = _without_large(changed[_METADATA])
        self._hashes[key] = uid, {name: known for name, known in hashes.items() if name not in cut}
        return Put(of=self._resource, object=changed, same=same, cut=cut)

    def gone(self, manifest: Manifest) -> Gone:
        """The record of a deleted object."""
        namespace, name = key = key_of(manifest)
        self._hashes.pop(key, None)
        return Gone(of=self._resource, namespace=namespace, name=name)


def _large(manifest: Manifest, changed: dict[str, Raw]) -> dict[str, int]:
    """The bytes that can be left out, by part."""
    status = len(changed.get(_STATUS, b""))
    annotations = sum(filter(_is_large, map(len, (manifest[_METADATA].get(_ANNOTATIONS) or {}).values())))
    return {part: size for part, size in ((_STATUS, status), (_METADATA, annotations)) if _is_large(size)}


def _is_large(size: int) -> bool:
    return size > _LARGE


def _without_large(metadata: Raw) -> Raw:
    found = orjson.loads(bytes(metadata))
    found[_ANNOTATIONS] = {name: text for name, text in found[_ANNOTATIONS].items() if not _is_large(len(text))}
    return Raw(orjson.dumps(found))


def whole_object(resource: str, manifest: Manifest, redactor: Redactor) -> Put:
    """The record of a whole object, without secrets. Raises any of `UNWRITABLE`."""
    parts = {name: _without_secrets(manifest, name, encoded_part(manifest, name), redactor) for name in manifest}
    return Put(of=resource, object=parts)


def _without_secrets(manifest: Manifest, name: str, encoded: bytes, redactor: Redactor) -> Raw:
    """A part of an object without secrets: most parts have none, and need not be decoded for that."""
    if name != _METADATA:
        return Raw(redactor.encoded(encoded))
    metadata = manifest[name]
    clean = redactor.metadata(metadata)
    return Raw(encoded if clean is metadata else orjson.dumps(clean))


def changed_object(change: Put, old: Manifest | None) -> Manifest:
    """The object after a change. Raises InvalidError when the version before is missing."""
    if not change.same:
        return change.object
    if old is None:
        raise InvalidError(f"a change of {change.of} {change.object['metadata']['name']}, which is not there")
    parts = {name: old[name] for name in change.same} | change.object
    # In the order of the version before, as a server writes them.
    return {name: parts[name] for name in old if name in parts} | parts
