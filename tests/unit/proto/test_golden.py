"""The golden messages: what a peer of any language sends and must understand."""

from pathlib import Path

import orjson
import pytest
from jsonschema import Draft202012Validator

from slicebus.proto.codec import decode, encode
from slicebus.proto.messages import MESSAGES, Direction
from slicebus.proto.topology import exchange_of
from unit.proto.golden import GOLDEN, NAMES, Golden, schema

every_golden = pytest.mark.parametrize("path", GOLDEN, ids=NAMES)


def test_every_type_has_a_golden() -> None:
    assert {decode(Golden.read(path).to_wire()).envelope.type for path in GOLDEN} == set(MESSAGES)


@every_golden
def test_a_golden_decodes_and_encodes_to_the_same(path: Path) -> None:
    wire = Golden.read(path).to_wire()
    received = decode(wire)
    assert encode(received.envelope, received.message, unknown=received.unknown) == wire


@every_golden
def test_a_golden_is_valid_by_its_schemas(path: Path) -> None:
    golden = Golden.read(path)
    wire = golden.to_wire()
    name = decode(wire).envelope.type
    Draft202012Validator(schema("envelope")).validate(golden.headers)
    Draft202012Validator(schema(name)).validate(orjson.loads(wire.body))


@every_golden
def test_a_golden_is_published_where_its_type_belongs(path: Path) -> None:
    golden = Golden.read(path)
    received = decode(golden.to_wire())
    assert golden.exchange == exchange_of(received.message.direction)
    sender = received.envelope.cluster if received.message.direction is Direction.UP else "manager"
    assert received.envelope.user_id == sender


def test_what_a_newer_minor_version_adds_is_kept() -> None:
    received = decode(Golden.named("status-of-newer-minor").to_wire())
    assert received.envelope.schema_version == "1.7"
    assert received.envelope.extensions == {"tenant": "team-a", "sampledrate": "0.25"}
    assert received.unknown == {
        "node_pools": ["spot", "on-demand"],
        "cost": {"currency": "EUR", "per_hour": 1.5, "estimate": None},
    }
