"""The version before and the one after: schemas that only add, and fields that nobody knows yet."""

import copy
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from slicebus.proto.codec import decode, encode
from slicebus.proto.envelope import SCHEMA_VERSION
from slicebus.proto.messages import Inventory
from support.versions import of_a_newer_minor, schema_of
from unit.proto.golden import GOLDEN, NAMES, PROTO, Golden

breaks: Callable[[Any, Any], list[str]] = runpy.run_path(str(PROTO / "compatibility.py"))["breaks"]
MAJOR, _, MINOR = SCHEMA_VERSION.partition(".")
VERSIONS = PROTO / "versions"
BEFORE = [f"{MAJOR}.{minor}" for minor in range(int(MINOR))]


def test_every_minor_version_before_this_one_is_kept() -> None:
    assert [folder.name for folder in sorted(VERSIONS.glob(f"{MAJOR}.*"))] == BEFORE
    assert all(list((VERSIONS / version / "schemas").glob("*.json")) for version in BEFORE)


def test_this_version_only_adds() -> None:
    for path in VERSIONS.glob(f"{MAJOR}.*/schemas/*.json"):
        name, version = path.stem, path.parents[1]
        assert (PROTO / "schemas" / path.name).exists(), f"the type {name} is gone: that needs another major version"
        found = breaks(schema_of(version, name), schema_of(PROTO, name))
        assert not found, f"a peer of {version.name} would not understand {name}: {'; '.join(found)}"


# --- the rules themselves -------------------------------------------------------------------------------------------

STATUS, REQUEST, INVENTORY = (schema_of(PROTO, name) for name in ("status", "scale-request", "inventory"))
ITEM = ("$defs", "InventoryItem")


def changed(schema: Any, *path: str | int, to: Any) -> Any:
    """A copy with another value at a path; None takes it out."""
    made = copy.deepcopy(schema)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return made


BROKEN: dict[str, tuple[Any, Any, str]] = {
    "a field is gone": (STATUS, changed(STATUS, "properties", "workload", to=None), "workload: is gone"),
    "a field is required now": (
        STATUS,
        changed(STATUS, "required", to=[*STATUS["required"], "message"]),
        "message: is required now",
    ),
    "a field may be missing now": (
        REQUEST,
        changed(REQUEST, "required", to=[name for name in REQUEST["required"] if name != "wanted"]),
        "wanted: may be missing now",
    ),
    "another type": (STATUS, changed(STATUS, "properties", "message", "type", to="integer"), "message: type was"),
    "another default": (STATUS, changed(STATUS, "properties", "message", "default", to="x"), "message: default was"),
    "a tighter constraint": (
        STATUS,
        changed(STATUS, "properties", "spec_version", "minimum", to=1),
        "spec_version: minimum was 0",
    ),
    "a wider constraint": (
        STATUS,
        changed(STATUS, "properties", "spec_version", "minimum", to=None),
        "spec_version: minimum was 0",
    ),
    "a new value of an enum": (
        STATUS,
        changed(STATUS, "$defs", "JobPhase", "enum", to=[*STATUS["$defs"]["JobPhase"]["enum"], "Paused"]),
        "phase: enum was",
    ),
    "a field of a part": (STATUS, changed(STATUS, "$defs", "JobRef", "properties", "uid", to=None), "job.uid: is gone"),
    "the values of a mapping": (
        STATUS,
        changed(STATUS, "properties", "pods", "additionalProperties", to={"type": "integer"}),
        "pods[]: type was 'object'",
    ),
    "what a mapping may hold": (
        STATUS,
        changed(STATUS, "properties", "pods", "additionalProperties", to=False),
        "pods: additionalProperties was",
    ),
    "fewer places": (
        INVENTORY,
        changed(INVENTORY, *ITEM, "prefixItems", to=INVENTORY["$defs"]["InventoryItem"]["prefixItems"][:-1]),
        "items[]: had 8 places, and has 7",
    ),
    "another kind of place": (
        INVENTORY,
        changed(INVENTORY, *ITEM, "prefixItems", 4, "type", to="string"),
        "items[][4]: type was 'integer'",
    ),
    "more places that must be there": (
        INVENTORY,
        changed(INVENTORY, *ITEM, "minItems", to=8),
        "items[]: minItems was 7",
    ),
}
FINE: dict[str, tuple[Any, Any]] = {
    "nothing": (STATUS, STATUS),
    "another description": (STATUS, changed(STATUS, "description", to="x")),
    "an optional field": (STATUS, changed(STATUS, "properties", "more", to={"type": "string", "default": ""})),
    "an optional field of a part": (
        STATUS,
        changed(STATUS, "$defs", "PodSetStatus", "properties", "more", to={"type": "integer", "default": 0}),
    ),
}


@pytest.mark.parametrize(("old", "new", "told"), BROKEN.values(), ids=BROKEN.keys())
def test_a_change_that_a_peer_would_not_understand_is_found(old: Any, new: Any, told: str) -> None:
    first, *_ = breaks(old, new) or [""]
    assert first.startswith(told)


@pytest.mark.parametrize(("old", "new"), FINE.values(), ids=FINE.keys())
def test_a_change_that_only_adds_is_a_minor_version(old: Any, new: Any) -> None:
    assert breaks(old, new) == []


# --- messages of a version after ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOLDEN, ids=NAMES)
def test_what_a_newer_minor_version_adds_changes_nothing(path: Path) -> None:
    wire = Golden.read(path).to_wire()
    newer = of_a_newer_minor(wire)
    assert newer.body.count(b"of_newer_minor") >= 1
    received, known = decode(newer), decode(wire)
    assert received.message == known.message
    assert received.envelope.schema_version == "1.9"
    assert received.unknown == known.unknown | {"of_newer_minor": {"a": [1, None, "x"]}}
    again = encode(received.envelope, received.message, unknown=received.unknown)
    assert decode(again) == received
    assert again.headers["cloudEvents_tenant"] == "team-a"


def test_an_array_of_places_may_grow() -> None:
    wire = of_a_newer_minor(Golden.named("inventory").to_wire())
    message = decode(wire).message
    assert isinstance(message, Inventory)
    assert all(len(item) == 9 for item in orjson.loads(wire.body)["items"])
    assert message.items
