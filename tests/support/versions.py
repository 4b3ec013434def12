"""Messages as a peer of another minor version sends and understands them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import orjson

from slicebus.bus.contract import Bus, Delivery, Subscription
from slicebus.bus.sizes import Keep
from slicebus.proto.envelope import WireMessage
from slicebus.proto.headers import PREFIX
from slicebus.proto.messages import MESSAGES

PROTO = Path(__file__).parents[2] / "proto"
VERSIONS = PROTO / "versions"
_VERSION_HEADER = f"{PREFIX}schemaversion"

Schema = dict[str, Any]
Change = Callable[[WireMessage], WireMessage | None]
"""None: such a peer does not say it."""


@cache
def schema_of(folder: Path, name: str) -> Schema:
    """A JSON Schema."""
    read: Schema = orjson.loads((folder / "schemas" / f"{name}.json").read_bytes())
    return read


def as_of(version: str) -> Change:
    """A message with nothing that an older minor version does not know."""

    def change(message: WireMessage) -> WireMessage | None:
        if message.type not in MESSAGES:
            return message
        if not (VERSIONS / version / "schemas" / f"{message.type}.json").exists():
            return None
        schema, envelope = (schema_of(VERSIONS / version, name) for name in (message.type, "envelope"))
        known = {
            name: value
            for name, value in message.headers.items()
            if name in envelope["properties"] or not name.startswith(PREFIX)
        }
        body = pruned(orjson.loads(message.body), schema, schema)
        return _with(msgspec.structs.replace(message, headers=known), body, version=version)

    return change


def of_a_newer_minor(message: WireMessage) -> WireMessage:
    """A message with fields and attributes that this version does not know, wherever there is a place for them."""
    if message.type not in MESSAGES:
        return message
    schema = schema_of(PROTO, message.type)
    headers = message.headers | {"cloudEvents_tenant": "team-a"}
    body = extended(orjson.loads(message.body), schema, schema)
    return _with(msgspec.structs.replace(message, headers=headers), body, version="1.9")


def pruned(value: Any, schema: Schema, root: Schema) -> Any:
    """Only the fields and places that a schema names."""
    schema = _resolved(schema, root)
    if isinstance(value, dict) and "properties" in schema:
        known = {name: inner for name, inner in schema["properties"].items() if name in value}
        return {name: pruned(value[name], inner, root) for name, inner in known.items()}
    if isinstance(value, list) and "prefixItems" in schema:
        return [pruned(each, inner, root) for each, inner in zip(value, schema["prefixItems"], strict=False)]
    return _within(pruned, value, schema, root)


def extended(value: Any, schema: Schema, root: Schema) -> Any:
    """One field more in every object that a schema describes, and one place more in every array of places."""
    schema = _resolved(schema, root)
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        inner = {name: extended(each, known.get(name, {}), root) for name, each in value.items()}
        return inner | {"of_newer_minor": {"a": [1, None, "x"]}}
    if isinstance(value, list) and "prefixItems" in schema:
        inner_schemas = schema["prefixItems"]
        return [extended(each, inner, root) for each, inner in zip(value, inner_schemas, strict=True)] + ["newer"]
    return _within(extended, value, schema, root)


def _within(change: Callable[[Any, Schema, Schema], Any], value: Any, schema: Schema, root: Schema) -> Any:
    items, values = schema.get("items"), schema.get("additionalProperties")
    if isinstance(value, list) and isinstance(items, dict):
        return [change(each, items, root) for each in value]
    if isinstance(value, dict) and isinstance(values, dict):
        return {name: change(each, values, root) for name, each in value.items()}
    return value


def _resolved(schema: Schema, root: Schema) -> Schema:
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    return root["$defs"][name] if name else schema


def _with(message: WireMessage, body: Any, *, version: str) -> WireMessage:
    headers = message.headers | {_VERSION_HEADER: version}
    return msgspec.structs.replace(message, body=orjson.dumps(body), headers=headers)


class OtherVersion:
    """A connection of a peer of another version: what it says is changed, and what it hears."""

    def __init__(self, bus: Bus, *, says: Change, hears: Change) -> None:
        self._bus = bus
        self._says = says
        self._hears = hears

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def publish(self, exchange: str, message: WireMessage) -> None:
        said = self._says(message)
        if said is not None:
            await self._bus.publish(exchange, said)

    @asynccontextmanager
    async def subscribe(self, queue: str, *, prefetch: int, keep: Keep | None = None) -> AsyncIterator["_Changed"]:
        async with self._bus.subscribe(queue, prefetch=prefetch, keep=keep) as subscription:
            yield _Changed(subscription, self._hears)


class _Changed:
    def __init__(self, subscription: Subscription, change: Change) -> None:
        self._subscription = subscription
        self._change = change

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        async for delivery in self._subscription:
            heard = self._change(delivery.message)
            assert heard is not None, f"it was sent {delivery.message.type}, which it does not know"
            yield _ChangedDelivery(delivery, heard)


class _ChangedDelivery:
    def __init__(self, delivery: Delivery, message: WireMessage) -> None:
        self._delivery = delivery
        self.message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._delivery, name)
