"""The golden messages, as the tests read them."""

from pathlib import Path
from typing import Any

import msgspec
import orjson

from slicebus.proto.envelope import WireMessage

PROTO = Path(__file__).parents[3] / "proto"
GOLDEN = sorted((PROTO / "golden").glob("*.json"))
NAMES = [path.stem for path in GOLDEN]


class Golden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of proto/golden."""

    exchange: str
    routing_key: str
    properties: dict[str, Any]
    headers: dict[str, str]
    body: str

    @classmethod
    def read(cls, path: Path) -> "Golden":
        return msgspec.json.decode(path.read_bytes(), type=cls)

    @classmethod
    def named(cls, name: str) -> "Golden":
        return cls.read(PROTO / "golden" / f"{name}.json")

    def to_wire(self) -> WireMessage:
        properties = dict(self.properties)
        return WireMessage(
            routing_key=self.routing_key,
            headers=self.headers,
            body=self.body.encode(),
            persistent=properties.pop("delivery_mode") == 2,
            **properties,
        )


def schema(name: str) -> Any:
    """A committed JSON Schema."""
    return orjson.loads((PROTO / "schemas" / f"{name}.json").read_bytes())
