"""Writes the JSON Schemas and asyncapi.yaml from the types: `make proto`.

Descriptions are the docstrings, of types and of fields. A test fails when the files are not what this writes.
"""

import ast
import inspect
import json
import re
import textwrap
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import yaml

from slicebus.proto.envelope import SCHEMA_VERSION
from slicebus.proto.headers import PREFIX, Headers
from slicebus.proto.messages import MESSAGES, ClusterName, ClusterUid, Direction, Lane, Message
from slicebus.proto.topology import (
    AGENT_DEAD,
    AGENT_JOURNAL,
    DEAD,
    JOURNAL,
    Queue,
    Topology,
    agent_queue,
    agent_topology,
    cluster_queue,
    cluster_topology,
    exchange_of,
    manager_queue,
    manager_topology,
    routing_key,
)

ROOT = Path(__file__).parent
DIALECT = "https://json-schema.org/draft/2020-12/schema"
CLUSTER = ClusterName("{cluster}")
UID = ClusterUid("{uid}")

Json = dict[str, Any]


def main() -> None:
    """Write every file, and delete the schemas of removed types."""
    wanted = documents()
    for path in set(ROOT.glob("schemas/*.json")) - {ROOT / name for name in wanted}:
        path.unlink()
    for name, text in wanted.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(text, encoding="utf-8")


def documents() -> dict[str, str]:
    """The text of every generated file, by its path from here."""
    schemas = {f"schemas/{name}.json": schema(message) for name, message in MESSAGES.items()}
    extensions = {f"^{PREFIX}": {"type": "string"}}
    schemas["schemas/envelope.json"] = schema(Headers) | {"title": "Envelope", "patternProperties": extensions}
    texts = {path: json.dumps(content, indent=2, ensure_ascii=False) + "\n" for path, content in schemas.items()}
    dumped = yaml.dump(asyncapi(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return texts | {"asyncapi.yaml": f"# Made by `make proto` from the types.\n{dumped}"}


class _Dumper(yaml.SafeDumper):
    """Writes YAML without anchors: they make the file harder to read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


# --- JSON Schema ----------------------------------------------------------------------------------------------------


def schema(struct: type[msgspec.Struct]) -> Json:
    """The JSON Schema of a type, with the types it is made of as its `$defs`."""
    _, components = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    for part in _parts(struct):
        _describe(components[part.__name__], part)
    own: Json = components.pop(struct.__name__)
    return {"$schema": DIALECT} | own | ({"$defs": components} if components else {})


def _parts(root: type[Any]) -> list[type[Any]]:
    """The structs and enums that a type is made of, itself first."""
    types: list[type[Any]] = [root]
    for part in types:
        if not issubclass(part, Enum):
            inner = (
                node for field in msgspec.structs.fields(part) for node in _named(msgspec.inspect.type_info(field.type))
            )
            types += (named for named in inner if named not in types)
    return types


def _named(node: msgspec.inspect.Type) -> list[type[Any]]:
    match node:
        case msgspec.inspect.StructType(cls=cls) | msgspec.inspect.EnumType(cls=cls):
            return [cls]
        case msgspec.inspect.DictType(value_type=inner) | msgspec.inspect.ListType(item_type=inner):
            return _named(inner)
        case msgspec.inspect.Metadata(type=inner):
            return _named(inner)
        case msgspec.inspect.UnionType(types=types):
            return [named for inner in types for named in _named(inner)]
        case _:
            return []


def _describe(component: Json, part: type[Any]) -> None:
    """Put the docstrings of a type and its fields into its schema."""
    fields = _field_docstrings(part)
    component["description"] = _flowing(inspect.getdoc(part) or "")
    if issubclass(part, Enum):
        members = [f"{part[name].value}: {text}" for name, text in fields.items()]
        component["description"] = " ".join([component["description"], *members])
        return
    for index, field in enumerate(msgspec.structs.fields(part)):
        described = _described(component, index, field.encode_name)
        if field.name in fields:
            described["description"] = fields[field.name]


def _described(component: Json, index: int, name: str) -> Json:
    """The schema of a field. In an array the title has the name of the field."""
    if component["type"] == "object":
        field: Json = component["properties"][name]
        return field
    item: Json = {"title": name} | component["prefixItems"][index]
    component["prefixItems"][index] = item
    return item


def _field_docstrings(part: type[Any]) -> dict[str, str]:
    """The docstrings of the fields, by name: Python keeps them in the source only."""
    docstrings: dict[str, str] = {}
    for base in reversed(part.__mro__):
        if base.__module__.startswith("slicebus."):
            [definition] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            assert isinstance(definition, ast.ClassDef)
            for field, text in zip(definition.body, definition.body[1:], strict=False):
                match field, text:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                        ast.Expr(value=ast.Constant(value=str(words))),
                    ):
                        docstrings[name] = _flowing(words)
                    case _:
                        continue  # No field, or one without a docstring.
    return docstrings


def _flowing(text: str) -> str:
    """Paragraphs without their line breaks."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text.strip()))


# --- AsyncAPI -------------------------------------------------------------------------------------------------------


def asyncapi() -> Json:
    """The AsyncAPI document: both exchanges and every queue as channels, and the operations of both roles."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "slicebus",
            "version": SCHEMA_VERSION,
            "description": "What the manager and the agents of worker clusters say to each other over RabbitMQ. "
            "README.md, beside this file, has the rules that a schema cannot say.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {"broker": _server()},
        "channels": _channels(),
        "operations": _operations(),
        "components": {
            "messages": {name: _message(message) for name, message in MESSAGES.items()},
            "parameters": {
                "cluster": {"description": "The WorkerCluster's name, a DNS label."},
                "uid": {"description": "The UID of the cluster's namespace kube-system."},
            },
            "securitySchemes": {
                "user": {
                    "type": "userPassword",
                    "description": "One broker user for each cluster and one for the manager: "
                    "the verified user_id says who may speak for a cluster.",
                }
            },
        },
    }


def _server() -> Json:
    return {
        "host": "{host}",
        "protocol": "amqps",
        "protocolVersion": "0.9.1",
        "description": "RabbitMQ 3.10 to 4.3. Agents dial out to it; nothing dials into a worker cluster.",
        "variables": {"host": {"description": "The broker's host and port.", "default": "rabbitmq.example:5671"}},
        "security": [{"$ref": "#/components/securitySchemes/user"}],
    }


def _channels() -> Json:
    exchanges = {direction.value: _exchange_channel(direction) for direction in Direction}
    manager, agent, cluster = manager_topology(), agent_topology(CLUSTER, UID), cluster_topology(CLUSTER)
    agents = {
        f"agent-{lane}": _queue_channel(agent, agent_queue(CLUSTER, lane, UID), _of(Direction.DOWN, lane))
        for lane in Lane
    }
    return exchanges | {
        "manager-control": _queue_channel(manager, manager_queue(Lane.CONTROL), _of(Direction.UP, Lane.CONTROL)),
        "manager-status": _queue_channel(manager, manager_queue(Lane.STATUS), _of(Direction.UP, Lane.STATUS)),
        **agents,
        **{
            f"cluster-{lane}": _queue_channel(cluster, cluster_queue(CLUSTER, lane), _of(Direction.UP, lane))
            for lane in Lane
        },
        "journal": _queue_channel(manager, JOURNAL, _of(Direction.DOWN)),
        "agent-journal": _queue_channel(manager + cluster, AGENT_JOURNAL, _of(Direction.UP)),
        "dead": _queue_channel(manager, DEAD, _of(Direction.UP)),
        "agent-dead": _queue_channel(manager, AGENT_DEAD, _of(Direction.DOWN)),
    }


def _of(direction: Direction, lane: Lane | None = None) -> list[type[Message]]:
    return [
        message
        for message in MESSAGES.values()
        if message.direction is direction and (lane is None or message.lane is lane)
    ]


def _exchange_channel(direction: Direction) -> Json:
    messages = _of(direction)
    ends = {
        Direction.UP: "Agent to manager. The address is the routing key, with `.{shard}` where the last order for the "
        "job came from another shard of the manager than the first.",
        Direction.DOWN: "Manager to agent. The address is the routing key.",
    }
    uid = UID if direction is Direction.DOWN else None
    return {
        "address": routing_key(CLUSTER, "{type}", uid),
        "description": ends[direction],
        "messages": _message_refs(messages),
        "parameters": {
            "cluster": {"$ref": "#/components/parameters/cluster"},
            "type": {"description": "The message type.", "enum": [message.type for message in messages]},
            **({"uid": {"$ref": "#/components/parameters/uid"}} if uid else {}),
        },
        "bindings": {
            "amqp": {
                "is": "routingKey",
                "exchange": {"name": exchange_of(direction), "type": "topic", "durable": True, "autoDelete": False},
                "bindingVersion": "0.3.0",
            }
        },
    }


def _queue_channel(topology: Topology, name: str, messages: list[type[Message]]) -> Json:
    queue = next(queue for queue in topology.queues if queue.name == name)
    bound = [
        {"exchange": binding.exchange, "routingKey": binding.routing_key}
        for binding in topology.bindings
        if binding.queue == name
    ]
    channel: Json = {"address": name, "messages": _message_refs(messages)}
    if CLUSTER in name:
        named = [word for word in ("cluster", "uid") if f"{{{word}}}" in name]
        channel["parameters"] = {word: {"$ref": f"#/components/parameters/{word}"} for word in named}
    return channel | {"bindings": {"amqp": _queue_binding(queue, bound)}}


def _queue_binding(queue: Queue, bound: list[dict[str, str]]) -> Json:
    return {
        "is": "queue",
        "queue": {"name": queue.name, "durable": True, "exclusive": False, "autoDelete": False},
        "x-arguments": dict(queue.arguments),
        "x-bound-to": bound,
        "bindingVersion": "0.3.0",
    }


def _operations() -> Json:
    publishing = {"amqp": {"deliveryMode": 2, "mandatory": True, "bindingVersion": "0.3.0"}}
    consuming = {"amqp": {"ack": True, "bindingVersion": "0.3.0"}}

    def operation(action: str, channel: str, summary: str, bindings: Json) -> Json:
        return {
            "action": action,
            "channel": {"$ref": f"#/channels/{channel}"},
            "summary": summary,
            "bindings": bindings,
        }

    strangers = "The manager takes what comes from clusters that it has not accepted."
    return {
        "agent-publishes": operation("send", "up", "An agent reports and asks.", publishing),
        "agent-takes-orders": operation("receive", "agent-control", "An agent carries out orders.", consuming),
        "agent-takes-notices": operation(
            "receive", "agent-status", "An agent receives notices and inquiries.", consuming
        ),
        "manager-publishes": operation("send", "down", "The manager orders and answers.", publishing),
        "manager-takes-requests": operation("receive", "cluster-control", "The manager decides.", consuming),
        "manager-takes-reports": operation("receive", "cluster-status", "The manager mirrors statuses.", consuming),
        "manager-refuses-requests": operation(
            "receive",
            "manager-control",
            strangers,
            consuming,
        ),
        "manager-refuses-reports": operation(
            "receive",
            "manager-status",
            strangers,
            consuming,
        ),
    }


def _message_refs(messages: list[type[Message]]) -> Json:
    return {message.type: {"$ref": f"#/components/messages/{message.type}"} for message in messages}


def _message(message: type[Message]) -> Json:
    return {
        "name": message.type,
        "title": message.__name__,
        "summary": _flowing(inspect.getdoc(message) or ""),
        "contentType": "application/json",
        "headers": {"$ref": "./schemas/envelope.json"},
        "payload": {"$ref": f"./schemas/{message.type}.json"},
        "correlationId": {"location": f"$message.header#/{PREFIX}correlationid"},
        "bindings": {"amqp": {"messageType": message.type, "bindingVersion": "0.3.0"}},
    }


if __name__ == "__main__":
    main()
