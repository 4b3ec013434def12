"""Messages as a peer of a newer minor version sends them."""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import orjson

from slicebus.bus.contract import Bus
from slicebus.proto.envelope import WireMessage
from slicebus.proto.headers import PREFIX
from slicebus.proto.messages import MESSAGES

PROTO = Path(__file__).parents[2] / "proto"

Schema = dict[str, Any]


@cache
def schema_of(folder: Path, name: str) -> Schema:
    """A JSON Schema."""
    read: Schema = orjson.loads((folder / "schemas" / f"{name}.json").read_bytes())
    return read


def of_a_newer_minor(message: WireMessage) -> WireMessage:
    """A message with fields and attributes that this version does not know, wherever there is a place for them."""
    if message.type not in MESSAGES:
        return message
    schema = schema_of(PROTO, message.type)
    headers = message.headers | {"cloudEvents_tenant": "team-a", f"{PREFIX}schemaversion": "1.9"}
    body = extended(orjson.loads(message.body), schema, schema)
    return msgspec.structs.replace(message, headers=headers, body=orjson.dumps(body))


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
    items, values = schema.get("items"), schema.get("additionalProperties")
    if isinstance(value, list) and isinstance(items, dict):
        return [extended(each, items, root) for each in value]
    if isinstance(value, dict) and isinstance(values, dict):
        return {name: extended(each, values, root) for name, each in value.items()}
    return value


def _resolved(schema: Schema, root: Schema) -> Schema:
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    return root["$defs"][name] if name else schema


class NewerPeer:
    """A connection of a peer of a newer minor version."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def publish(self, exchange: str, message: WireMessage) -> None:
        await self._bus.publish(exchange, of_a_newer_minor(message))
