"""Keeps what a role remembers beside its caches, in tables whose changes can be observed and recorded.

Keys and values are never changed in place.
"""

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, TypeVar, overload

Key = TypeVar("Key")
Value = TypeVar("Value")
Default = TypeVar("Default")
Observer = Callable[[Any, Any], None]

FORGOTTEN = object()
"""The value that an observer gets for a removed entry."""


class Table(MutableMapping[Key, Value]):
    """A dictionary whose keys and values msgspec can encode, and whose changes observers get."""

    def __init__(self, key_type: Any, value_type: Any) -> None:
        self.key_type = key_type
        self.value_type = value_type
        self._entries: dict[Key, Value] = {}
        self._observers: list[Observer] = []

    def observe(self, observer: Observer) -> None:
        """Call back with the key and the value of every change, at once and in order."""
        self._observers.append(observer)

    def __getitem__(self, key: Key) -> Value:
        return self._entries[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    @overload
    def get(self, key: Key, /) -> Value | None: ...
    @overload
    def get(self, key: Key, /, default: Value | Default) -> Value | Default: ...
    def get(self, key: Key, /, default: Any = None) -> Any:
        """The value, or the default. Most look-ups find nothing: that of the base class raises and catches an error."""
        return self._entries.get(key, default)

    def __setitem__(self, key: Key, value: Value) -> None:
        self._entries[key] = value
        for observer in self._observers:
            observer(key, value)

    def __delitem__(self, key: Key) -> None:
        del self._entries[key]
        for observer in self._observers:
            observer(key, FORGOTTEN)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Table({self._entries!r})"
