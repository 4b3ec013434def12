"""Writes the definitions of a broker in the three formats that brokers take. None of them has a password."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

import orjson
import yaml

from slicebus.bus.sizes import RECORDING_BYTES
from slicebus.proto.rights import Definitions, UserLimits

Manifest = dict[str, Any]
SALT_BYTES = 4
"""The length of the salt in RabbitMQ's own hashes."""
_HASHING = "rabbit_password_hashing_sha256"
_API_VERSION = "rabbitmq.com/v1beta1"
_FILES = "a file for each new user"
_SECRET_PREFIX = "slicebus-broker-user"
_OF_THE_SCRIPT = ("permissions", "topic_permissions", "parameters", "policies")
"""The definitions that the script's last call imports: the manager declares queues and bindings itself."""


def password_hash(password: str, salt: bytes) -> str:
    """RabbitMQ's salted SHA-256 of a password: salt and digest in base64."""
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def as_definitions(definitions: Definitions, vhost: str, hashes: Mapping[str, str]) -> Manifest:
    """The JSON for `rabbitmqctl import_definitions`, for the management API, and for the start of a node.

    Only users with a hash are in it. RabbitMQ takes the password away from a user that comes without one, and refuses
    permissions for a user that does not exist; so without hashes it loads where the users exist.
    """
    rights, topology = definitions.rights, definitions.topology
    vhost_limits = {"max-queues": definitions.max_queues}
    limits = {limit.user: limit for limit in rights.limits}
    users = [
        {
            "name": user,
            "password_hash": hashes[user],
            "hashing_algorithm": _HASHING,
            "tags": [],
            "limits": limits_of(limits[user]),
        }
        for user in definitions.users
        if user in hashes
    ]
    return {
        "users": users,
        "vhosts": [{"name": vhost}],
        "permissions": [
            {
                "user": permission.user,
                "vhost": vhost,
                "configure": permission.configure,
                "write": permission.write,
                "read": permission.read,
            }
            for permission in rights.permissions
        ],
        "topic_permissions": [
            {
                "user": permission.user,
                "vhost": vhost,
                "exchange": permission.exchange,
                "write": permission.write,
                "read": permission.read,
            }
            for permission in rights.topic_permissions
        ],
        "parameters": [{"component": "vhost-limits", "name": "limits", "vhost": vhost, "value": vhost_limits}],
        "policies": [
            {
                "vhost": vhost,
                "name": policy.name,
                "pattern": policy.pattern,
                "apply-to": "queues",
                "definition": policy.definition,
                "priority": policy.priority,
            }
            for policy in definitions.policies
        ],
        "exchanges": exchanges(definitions, vhost),
        "queues": [
            {
                "name": queue.name,
                "vhost": vhost,
                "durable": True,
                "auto_delete": False,
                "arguments": queue.arguments,
            }
            for queue in topology.queues
        ],
        "bindings": [
            {
                "source": binding.exchange,
                "vhost": vhost,
                "destination": binding.queue,
                "destination_type": "queue",
                "routing_key": binding.routing_key,
                "arguments": {},
            }
            for binding in topology.bindings
        ],
    }


def exchanges(definitions: Definitions, vhost: str) -> list[Manifest]:
    """The exchanges alone, to be made first: RabbitMQ 4.3 refuses a topic permission on one that does not exist."""
    return [
        {
            "name": exchange.name,
            "vhost": vhost,
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": exchange.arguments,
        }
        for exchange in definitions.topology.exchanges
    ]


def as_shell(definitions: Definitions, vhost: str) -> str:
    """A script that runs on a host of the broker, and may be repeated.

    The password of a user that does not exist yet comes from a file with the user's name: an argument would show in the
    list of processes. rabbitmqctl of RabbitMQ 4.0 reads a password from its input only without `-q`, and definitions
    never.
    """
    where = quote(vhost)
    rest = {key: value for key, value in as_definitions(definitions, vhost, {}).items() if key in _OF_THE_SCRIPT}
    return "\n".join(
        [
            "#!/bin/sh",
            f"# Before: PASSWORDS=FOLDER, with {_FILES}, named as the user; its only line is the password.",
            f"# Beside this, in rabbitmq.conf: max_message_size = {RECORDING_BYTES}",
            "set -eu",
            'names() { rabbitmqctl -q --no-table-headers "$1" | cut -f1; }',
            f"names list_vhosts | grep -Fqx -- {where} || rabbitmqctl -q add_vhost {where}",
            "users=$(names list_users)",
            "user() {",
            '  printf \'%s\\n\' "$users" | grep -Fqx -- "$1" ||',
            f'    rabbitmqctl add_user "$1" < "${{PASSWORDS:?a folder with {_FILES}}}/$1" > /dev/null',
            '  rabbitmqctl -q set_user_limits "$1" "$2"',
            "}",
            *(f"user {quote(limit.user)} {quote(_json(limits_of(limit)))}" for limit in definitions.rights.limits),
            "file=$(mktemp)",
            "trap 'rm \"$file\"' EXIT",
            "# Debian's rabbitmqctl reads it as another user.",
            'chmod a+r "$file"',
            *_import({"exchanges": exchanges(definitions, vhost)}),
            *_import(rest),
        ]
    )


def _import(definitions: Manifest) -> list[str]:
    """The lines that import definitions in one call, because each call takes seconds of processor time."""
    text = orjson.dumps(definitions).decode()
    return ["cat > \"$file\" <<'END'", text, "END", 'rabbitmqctl -q import_definitions "$file"']


def as_manifests(definitions: Definitions, vhost: str, *, rabbitmq: str) -> str:
    """Objects for RabbitMQ's Messaging Topology Operator, 1.17 or later; `rabbitmq` names the RabbitmqCluster.

    Each user refers to a Secret with its name and password, which somebody has to make.
    """
    of, limits = (
        {"rabbitmqClusterReference": {"name": rabbitmq}},
        {limit.user: limit for limit in definitions.rights.limits},
    )
    manifests = [_manifest("Vhost", "slicebus", {"name": vhost, "limits": {"queues": definitions.max_queues}})]
    for exchange in definitions.topology.exchanges:
        spec: Manifest = {"name": exchange.name, "vhost": vhost, "type": "topic", "durable": True}
        spec |= {"arguments": exchange.arguments} if exchange.arguments else {}
        manifests.append(_manifest("Exchange", exchange.name, spec))
    for user in definitions.users:
        limit = limits[user]
        spec = {
            "importCredentialsSecret": {"name": object_name(_SECRET_PREFIX, user)},
            "limits": {"connections": limit.connections, "channels": limit.channels},
        }
        manifests.append(_manifest("User", object_name("slicebus", user), spec))
    for permission in definitions.rights.permissions:
        allowed = {"configure": permission.configure, "write": permission.write, "read": permission.read}
        spec = {"user": permission.user, "vhost": vhost, "permissions": allowed}
        manifests.append(_manifest("Permission", object_name("slicebus", permission.user), spec))
    for topic in definitions.rights.topic_permissions:
        allowed = {"exchange": topic.exchange, "write": topic.write, "read": topic.read}
        spec = {"user": topic.user, "vhost": vhost, "permissions": allowed}
        manifests.append(_manifest("TopicPermission", object_name(topic.exchange, topic.user), spec))
    for policy in definitions.policies:
        spec = {
            "name": policy.name,
            "vhost": vhost,
            "pattern": policy.pattern,
            "applyTo": "queues",
            "priority": policy.priority,
            "definition": policy.definition,
        }
        manifests.append(_manifest("Policy", policy.name, spec))
    for manifest in manifests:
        manifest["spec"] |= of
    head = "".join(f"# {line}\n" for line in _secrets(definitions.users))
    return head + yaml.safe_dump_all(manifests, sort_keys=False, width=1000).rstrip("\n")


def _secrets(users: Sequence[str]) -> list[str]:
    """Lines that tell people how to make the Secrets."""
    return [
        "Before, in the namespace of the RabbitmqCluster, with the password of each user in a file:",
        *(
            f"kubectl create secret generic {object_name(_SECRET_PREFIX, user)} "
            f"--from-literal={quote(f'username={user}')} --from-file=password=FILE"
            for user in users
        ),
    ]


def object_name(prefix: str, text: str) -> str:
    """A name for a Kubernetes object; different texts have different names."""
    plain = re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip("-.") or "user"
    if plain != text:
        plain = f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"{prefix}-{plain}"


def _manifest(kind: str, name: str, spec: Mapping[str, Any]) -> Manifest:
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


def limits_of(limits: UserLimits) -> dict[str, int]:
    """The limits of a user by RabbitMQ's names."""
    return {"max-connections": limits.connections, "max-channels": limits.channels}


def _json(value: Mapping[str, str | int]) -> str:
    return orjson.dumps(value).decode()
