"""Parses cached objects into values, once for each version of an object."""

from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from slicebus.kube.cache import Cache, Change, key_of
from slicebus.proto.errors import DecisionError
from slicebus.proto.messages import Manifest

_log = structlog.get_logger()
Read = TypeVar("Read")


class Readings(Generic[Read]):
    """Keeps the values of a cache's objects. An unreadable object counts as missing, and affects no other."""

    def __init__(
        self,
        cache: Cache,
        read: Callable[[Manifest], Read | None],
        *,
        read_again: Callable[[Manifest, Manifest, Read], Read] | None = None,
        on_change: Callable[[Read | None, Read | None], None] = lambda old, new: None,
    ) -> None:
        """`read` parses an object: None where there is nothing to parse, ValueError where it is unreadable.
        `read_again` gets the new object, the old one and the old value. `on_change` gets the old and the new value."""
        self.values: dict[tuple[str, str], Read] = {}
        """By namespace and name; the namespace is empty where there is none."""
        self._read = read
        self._read_again = read_again
        self._on_change = on_change
        cache.subscribe(self._update)

    def _update(self, change: Change) -> None:
        manifest = change.new or change.old
        assert manifest is not None
        key, new = key_of(manifest), None
        old = self.values.get(key)
        try:
            new = self._read_change(change, old)
        except ValueError as error:
            _log.warning("object.unreadable", namespace=key[0], name=key[1], error=str(error))
        except Exception as error:  # noqa: BLE001 whoever wrote the object must not end the role
            failed = DecisionError.of(getattr(self._read, "__qualname__", "read"), error)
            _log.error("object.unreadable", namespace=key[0], name=key[1], error=str(failed), exc_info=error)
        if new is None:
            self.values.pop(key, None)
        else:
            self.values[key] = new
        self._on_change(old, new)

    def _read_change(self, change: Change, old: Read | None) -> Read | None:
        if change.new is None:
            return None
        if self._read_again is None or change.old is None or old is None:
            return self._read(change.new)
        return self._read_again(change.new, change.old, old)
