"""Reduces a large heartbeat to what the manager asked for, before it is read: whoever sends it chooses its size.

To read 250 KB takes 20 ms, in which nobody else's message is handled; to pass over what nobody asked for takes 1.
"""

from collections.abc import Collection
from itertools import islice

import msgspec
from msgspec import Raw

from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import POLICY_BYTES, Heartbeat

LARGE_BYTES = 16 * 1024
"""A usual one has less. It is taken as it is."""
_MOST = 100
"""Resources of a flavor, or RuntimeClasses, that are kept. A node has about ten."""
_LONGEST = 320
"""Bytes of a name, and of what is neither a list nor an object: a prefix has 253, and what follows it 63."""
_BACKENDS = 16
_WHOLE = ""
"""In place of a flavor's name: the whole cluster."""
_BY_FLAVOR = ("capacity", "used", "ours")

_Parts = dict[str, Raw]
_object = msgspec.json.Decoder(_Parts).decode
_list = msgspec.json.Decoder(list[Raw]).decode


def reduced(store: ManagerStore, body: bytes) -> bytes:
    """The body of a heartbeat with the flavors and namespaces of the terms alone, and a bounded number of everything
    else. One that is no heartbeat is returned as it is: whoever reads it says what is wrong."""
    flavors = {_WHOLE, *(flavor["metadata"]["name"] for flavor in store.flavors.all())}
    namespaces = {queue["metadata"]["namespace"] for queue in store.local_queues.all()}
    try:
        parts = {
            name: _kept(name, part, flavors, namespaces)
            for name, part in _only(Heartbeat.__struct_fields__, body).items()
        }
        return msgspec.json.encode({name: part for name, part in parts.items() if part is not None})
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body


def _kept(name: str, part: Raw, flavors: Collection[str], namespaces: Collection[str]) -> object:
    """What is kept of a field; None for nothing."""
    if name in _BY_FLAVOR:
        return _groups(_only(flavors, part))
    if name == "lacking":
        return _texts(_only(namespaces, part))
    if name == "container_defaults":
        return _groups(_only(namespaces, part))
    if name == "pod_overheads":
        return _groups(dict(islice(_object(part).items(), _MOST)))
    if name == "policy":
        return part if len(memoryview(part)) <= POLICY_BYTES else None
    if name == "scheduler_backends":
        return [backend for backend in _list(part)[:_BACKENDS] if _is_short(backend)]
    return part if _is_short(part) else None


def _only(names: Collection[str], encoded: Raw | bytes) -> _Parts:
    return {name: part for name, part in _object(encoded).items() if name in names}


def _groups(groups: _Parts) -> dict[str, _Parts]:
    return {name: dict(islice(_texts(_object(group)).items(), _MOST)) for name, group in groups.items()}


def _texts(texts: _Parts) -> _Parts:
    return {name: text for name, text in texts.items() if len(name) <= _LONGEST and _is_short(text)}


def _is_short(part: Raw) -> bool:
    return len(memoryview(part)) <= _LONGEST
