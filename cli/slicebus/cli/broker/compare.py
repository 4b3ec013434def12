"""Compares what a broker has with what it should have. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from slicebus.cli.broker.formats import as_definitions, limits_of
from slicebus.proto.rights import Definitions, Viewer, viewer_rights

Manifest = Mapping[str, Any]
_NAMES = {
    "permissions": "permission",
    "topic_permissions": "topic permission",
    "policies": "policy",
    "parameters": "parameter",
}
_RIGHTS = ("configure", "write", "read")


def viewers(broker: Manifest, vhost: str) -> list[Viewer]:
    """Who reads the journal of this vhost and may do nothing else: nobody has a list of them, their rights tell."""
    return [
        Viewer(entry["user"])
        for entry in broker.get("permissions", ())
        if entry["vhost"] == vhost and is_viewers(entry)
    ]


def is_viewers(permission: Manifest) -> bool:
    """Whether a permission is that of a viewer."""
    try:
        [wanted] = viewer_rights(Viewer(permission["user"])).permissions
    except ValueError:
        return False
    return all(permission.get(name) == getattr(wanted, name) for name in _RIGHTS)


def differences(definitions: Definitions, vhost: str, broker: Manifest) -> list[str]:
    """What is too broad, too narrow or missing, as texts for people. `broker` has the definitions of the whole broker.

    Other users of the vhost, and their rights, are named too: nobody else has to be there but administrators.
    """
    wanted = as_definitions(definitions, vhost, {})
    return [
        *_missing_users(definitions, broker),
        *_differing("permissions", ("user",), _RIGHTS, wanted, broker, vhost),
        *_differing("topic_permissions", ("user", "exchange"), ("write", "read"), wanted, broker, vhost),
        *_strangers(definitions, broker, vhost),
        *_limits(definitions, broker),
        *_differing("policies", ("name",), ("pattern", "definition", "priority"), wanted, broker, vhost),
        *_differing("parameters", ("component", "name"), ("value",), wanted, broker, vhost),
    ]


def _missing_users(definitions: Definitions, broker: Manifest) -> list[str]:
    names = {user["name"] for user in broker.get("users", ())}
    return [f"there is no user {user}" for user in definitions.users if user not in names]


def _differing(
    kind: str, keys: tuple[str, ...], fields: tuple[str, ...], wanted: Manifest, broker: Manifest, vhost: str
) -> list[str]:
    def by_key(entries: Iterable[Manifest]) -> dict[tuple[str, ...], Manifest]:
        return {tuple(entry[key] for key in keys): entry for entry in entries if entry.get("vhost") == vhost}

    present, problems = by_key(broker.get(kind, ())), []
    for key, entry in by_key(wanted[kind]).items():
        name = f"{_NAMES[kind]} of {', '.join(key)}"
        if key not in present:
            every_key = ": it may use every key" if kind == "topic_permissions" else ""
            problems.append(f"no {name}{every_key}")
            continue
        problems += [
            f"{name}: {field} is {present[key].get(field)!r}, not {entry[field]!r}"
            for field in fields
            if present[key].get(field) != entry[field]
        ]
    return problems


def _strangers(definitions: Definitions, broker: Manifest, vhost: str) -> list[str]:
    """Users with rights in the vhost that slicebus does not know, such as those of clusters that left."""
    administrators = {user["name"] for user in broker.get("users", ()) if "administrator" in user.get("tags", ())}
    return [
        f"user {entry['user']} has rights and belongs to no accepted cluster"
        for entry in broker.get("permissions", ())
        if entry["vhost"] == vhost and entry["user"] not in (*definitions.users, *administrators)
    ]


def _limits(definitions: Definitions, broker: Manifest) -> list[str]:
    present = {user["name"]: user.get("limits") or {} for user in broker.get("users", ())}
    problems = []
    for limit in definitions.rights.limits:
        wanted = limits_of(limit)
        if limit.user in present and dict(present[limit.user]) != wanted:
            problems.append(f"limits of {limit.user} are {dict(present[limit.user])}, not {wanted}")
    return problems
