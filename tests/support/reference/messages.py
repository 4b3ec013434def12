"""The page docs/reference/messages.md: the fields of every message, from the JSON Schemas that `make proto` writes."""

import json
from pathlib import Path
from typing import Any

from slicebus.proto.messages import MESSAGES, Message

Schema = dict[str, Any]
_SCHEMAS = Path(__file__).parents[3] / "proto" / "schemas"
_HEAD = """# Messages

The body of every message between manager and agents. `make reference` writes this page from the
schemas, and a test compares it with them. [The protocol](../../proto/README.md) has the headers, the queues, and what a
receiver has to do.

"""
_TABLE = "| field | type | required | meaning |\n|---|---|---|---|\n"
_ENDS = {"up": "Agent to manager", "down": "Manager to agent"}


def messages_page() -> str:
    """The page, from the committed schemas."""
    parts: dict[str, Schema] = {}
    sections = [_message(message, parts) for message in MESSAGES.values()]
    shared = [_part(name, parts[name]) for name in sorted(parts)]
    return _HEAD + "\n".join([*sections, "## What messages are made of\n", *shared])


def _message(message: type[Message], parts: dict[str, Schema]) -> str:
    schema = json.loads((_SCHEMAS / f"{message.type}.json").read_text(encoding="utf-8"))
    parts |= schema.get("$defs", {})
    lines = [
        f"## {message.type}\n",
        f"{_ENDS[message.direction]}, lane `{message.lane}`. {_cell(schema['description'])}\n",
        _fields(schema),
    ]
    return "\n".join(lines)


def _part(name: str, schema: Schema) -> str:
    if "enum" in schema:
        values = ", ".join(f"`{value}`" for value in schema["enum"])
        return f"### {name}\n\n{_cell(schema['description'])} One of {values}.\n"
    return f"### {name}\n\n{_cell(schema['description'])}\n\n{_fields(schema)}"


def _fields(schema: Schema) -> str:
    """A row for each field; in an array the fields stand in this order."""
    if schema["type"] == "array":
        named = {item["title"]: item for item in schema["prefixItems"]}
        required = list(named)[: schema["minItems"]]
    else:
        named, required = schema["properties"], schema.get("required", [])
    if not named:
        return "It has no fields.\n"
    rows = [
        f"| `{name}` | {_type(field)} | {'yes' if name in required else 'no'} | {_cell(field.get('description', ''))} |"
        for name, field in named.items()
    ]
    return _TABLE + "\n".join(rows) + "\n"


def _type(field: Schema) -> str:
    """The type of a field, as a link where the page has a section on it."""
    match field:
        case {"$ref": str(ref)}:
            name = ref.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"anyOf": list(kinds)}:
            return " or ".join(dict.fromkeys(map(_type, kinds)))
        case {"enum": list(values)}:
            return " or ".join(f"`{value}`" for value in values)
        case {"type": "array", "items": dict(items)}:
            return f"list of {_type(items)}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"map to {_type(values)}"
        case {"type": list(kinds)}:
            return " or ".join(kinds)
        case {"type": str(kind)}:
            return kind
        case _:
            return "any"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").removesuffix(".") + ("." if text else "")
