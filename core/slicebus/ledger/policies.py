"""Keeps what the manager decides by beside the slices, and says what changes of it."""

from collections.abc import Iterable, Iterator

from slicebus.journal.object_diffs import changed_object
from slicebus.journal.recording import Noted, Put
from slicebus.kube.cache import key_of
from slicebus.ledger.books import version_of
from slicebus.ledger.facts import PolicyFact
from slicebus.ledger.specs import POLICY_RESOURCES, SETTINGS, policy_text
from slicebus.proto.messages import Manifest

_Key = tuple[str, str, str]
"""The resource, the namespace and the name."""


class Policies:
    """The queues, flavors, clusters and settings as they are now, and as they were told last. Of an object it is the
    newest version that any shard has shown."""

    def __init__(self, told: Iterable[PolicyFact]) -> None:
        self._told: dict[_Key, str] = {(one.resource, one.namespace, one.name): one.document for one in told}
        self._now: dict[_Key, str] = {}
        self._objects: dict[_Key, Manifest] = {}

    def put(self, change: Put) -> _Key:
        """Take an object as it is now. Raises InvalidError."""
        key = change.of, *key_of(change.object)
        before = self._objects.get(key)
        if before is None or version_of(change.object) > version_of(before):  # Another shard may be faster.
            now = self._objects[key] = changed_object(change, before)
            self._now[key] = policy_text(change.of, now)
        return key

    def noted(self, setting: Noted) -> _Key:
        """Take a setting of the manager as it is now."""
        key = SETTINGS, "", bytes(setting.key).decode()
        self._now[key] = bytes(setting.value).decode()
        return key

    def gone(self, resource: str, namespace: str, name: str) -> _Key:
        """An object was deleted."""
        key = resource, namespace, name
        self._objects.pop(key, None)
        self._now.pop(key, None)
        return key

    def resumed(self, snapshot: Iterable[Put | Noted], *, is_whole: bool) -> None:
        """Take a snapshot. `is_whole`: what is not in it is gone."""
        there = set[_Key]()
        for content in snapshot:
            if isinstance(content, Noted):
                there |= {self.noted(content)} if content.table == SETTINGS else set()
            elif content.of in POLICY_RESOURCES:
                there.add(self.put(content))
        for key in [key for key in self._now if key not in there] if is_whole else ():
            self.gone(*key)

    def untold(self, at_ms: int, keys: Iterable[_Key] | None = None) -> Iterator[PolicyFact]:
        """What is otherwise than it was told, of these or of all. Most changes are of a status that only shows
        something."""
        for key in sorted({*self._told, *self._now}) if keys is None else keys:
            text = self._now.get(key, "")
            if text == self._told.get(key, ""):
                continue
            if text:
                self._told[key] = text
            else:
                del self._told[key]
            resource, namespace, name = key
            yield PolicyFact(resource=resource, namespace=namespace, name=name, at_ms=at_ms, document=text)
