"""Answers discovery: versions, groups, resources."""

from typing import Any

from slicebus.sandbox.apiserver.kinds import ALL_VERBS, Served
from slicebus.sandbox.apiserver.status import unserved
from slicebus.sandbox.apiserver.store import ObjectStore

Manifest = dict[str, Any]

VERSION: Manifest = {"major": "1", "minor": "36", "gitVersion": "v1.36.0-slicebus.embedded", "platform": "python"}


def api_versions() -> Manifest:
    """The answer to `/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def api_groups(store: ObjectStore) -> Manifest:
    """The answer to `/apis`."""
    versions: dict[str, list[str]] = {}
    for served in store.all_served():
        if served.resource.group:
            known = versions.setdefault(served.resource.group, [])
            if served.resource.version not in known:
                known.append(served.resource.version)
    groups = []
    for name, served_versions in sorted(versions.items()):
        entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in served_versions]
        groups.append({"name": name, "versions": entries, "preferredVersion": entries[0]})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_resources(store: ObjectStore, group: str, version: str) -> Manifest:
    """The answer to `/api/v1` or `/apis/GROUP/VERSION`."""
    entries: list[Manifest] = []
    for served in store.all_served():
        if (served.resource.group, served.resource.version) == (group, version):
            entries.extend(_entries(served))
    if not entries:
        raise unserved()
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def _entries(served: Served) -> list[Manifest]:
    resource = served.resource
    entry = {
        "name": resource.plural,
        "singularName": served.singular or resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(ALL_VERBS),
        "shortNames": list(served.short_names),
    }
    if not served.has_status:
        return [entry]
    return [entry, entry | {"name": f"{resource.plural}/status", "verbs": ["get", "patch", "update"], "shortNames": []}]
