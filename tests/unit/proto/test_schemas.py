"""The committed schemas are what the types say."""

import runpy

import pytest
from jsonschema import Draft202012Validator

from slicebus.proto.messages import MESSAGES, Lane
from slicebus.proto.topology import agent_topology, cluster_topology, manager_topology
from unit.proto.golden import PROTO, schema

GENERATED: dict[str, str] = runpy.run_path(str(PROTO / "generate.py"))["documents"]()


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_file_agrees_with_the_types(name: str) -> None:
    path = PROTO / name
    committed = path.read_text(encoding="utf-8") if path.exists() else None
    assert committed == GENERATED[name], f"proto/{name} is not what the types say: run make proto"


def test_there_is_no_schema_of_a_removed_type() -> None:
    found = {str(path.relative_to(PROTO)) for path in PROTO.glob("schemas/*")}
    assert found <= set(GENERATED), "run make proto"


def test_every_type_has_a_schema() -> None:
    assert {f"schemas/{name}.json" for name in MESSAGES} < set(GENERATED)


@pytest.mark.parametrize("name", [*MESSAGES, "envelope"])
def test_a_schema_is_a_valid_schema_with_a_description(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))
    assert schema(name)["description"]


def test_descriptions_are_the_docstrings_of_types_and_fields() -> None:
    request = schema("scale-request")
    assert request["description"] == "A job on the worker wants another size."
    assert request["properties"]["workload"]["description"] == "The slice that the worker's job names now."
    assert request["$defs"]["JobRef"]["description"].startswith("One job on the manager")
    assert "Gone: Somebody other" in schema("status")["$defs"]["JobPhase"]["description"]


def test_an_unknown_field_is_valid() -> None:
    schemas = [schema(name) for name in MESSAGES]
    parts = schemas + [part for each in schemas for part in each.get("$defs", {}).values()]
    assert not [part["title"] for part in parts if part.get("additionalProperties") is False]


def test_the_readme_names_every_type_with_its_direction_and_lane() -> None:
    text = (PROTO / "README.md").read_text(encoding="utf-8")
    for message in MESSAGES.values():
        assert f"| `{message.type}` | {message.direction} | {message.lane} |" in text


def test_the_readme_names_every_header_and_whether_it_must_be_there() -> None:
    text = (PROTO / "README.md").read_text(encoding="utf-8")
    envelope = schema("envelope")
    for name in envelope["properties"]:
        must = "yes" if name in envelope["required"] else "no"
        assert f"| `{name.removeprefix('cloudEvents_')}` | {must} |" in text


def test_the_readme_names_every_queue() -> None:
    text = (PROTO / "README.md").read_text(encoding="utf-8")
    for queue in (
        manager_topology() + cluster_topology("<cluster>") + agent_topology("<cluster>", "<clusteruid>")
    ).queues:
        assert f"`{queue.name}`" in text


def test_asyncapi_has_every_message_and_lane() -> None:
    text = GENERATED["asyncapi.yaml"]
    for message in MESSAGES.values():
        assert f"$ref: ./schemas/{message.type}.json" in text
    for end in ("manager", "cluster", "agent"):
        for lane in Lane:
            assert f"  {end}-{lane}:\n" in text
