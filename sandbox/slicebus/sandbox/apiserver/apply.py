"""Server-side apply: field owners, and the object after an apply.

A plain write owns the fields that it changes. An apply owns all fields of its manifest, and removes those that the
manifest no longer has.
Ownership is kept in `metadata.managedFields`.
"""

from typing import Any

import msgspec

from slicebus.kube.times import now_text
from slicebus.sandbox.apiserver.fields import (
    Path,
    differences,
    dropped,
    from_wire,
    is_key,
    leaves,
    merged,
    to_text,
    to_wire,
)
from slicebus.sandbox.apiserver.kinds import Served, list_keys
from slicebus.sandbox.apiserver.status import Refusal

Manifest = dict[str, Any]

_UNOWNED = {
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "creationTimestamp",
            "deletionGracePeriodSeconds",
            "deletionTimestamp",
            "generateName",
            "generation",
            "managedFields",
            "name",
            "namespace",
            "resourceVersion",
            "selfLink",
            "uid",
        )
    ),
}


class Writer(msgspec.Struct, frozen=True):
    """The writer of a request and its kind of write: an owner of fields."""

    manager: str
    operation: str = "Update"
    subresource: str = ""

    def to_text(self, entry: Manifest) -> str:
        """The name in a conflict."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == "Apply" else f"{text} using {entry['apiVersion']}"


def recorded(served: Served, old: Manifest | None, new: Manifest, writer: Writer) -> list[Manifest]:
    """The owners after a plain write: the writer owns new and changed fields, nobody owns removed ones."""
    gone, changed = differences(old or {}, new, list_keys(served))
    changed = {path for path in changed if not _unowned(path)}
    entries = _entries(old)
    if not gone and not changed:
        return entries
    owners = {owner: paths - gone - (changed if owner != writer else set()) for owner, paths in _owners(entries)}
    owners[writer] = owners.get(writer, set()) | changed
    return _written(served, entries, owners)


def applied(served: Served, old: Manifest | None, manifest: Manifest, writer: Writer, *, force: bool) -> Manifest:
    """The object after an apply. Raises Refusal 409 for fields that another manager owns, unless forced."""
    keys, entries = list_keys(served), _entries(old)
    part = _writable(served, manifest, writer)
    mine = {path: value for path, value in leaves(part, keys) if not _unowned(path)}
    owners = dict(_owners(entries))
    present = dict(leaves(old or {}, keys))
    disputed = {
        owner: {path for path in paths & mine.keys() if present.get(path) != mine[path]}
        for owner, paths in owners.items()
        if owner != writer
    }
    if any(disputed.values()) and not force:
        raise _conflict(disputed, entries)
    done: Manifest = merged(old or {}, part, keys)
    elsewhere = {path for owner, paths in owners.items() if owner != writer for path in paths}
    for path in sorted(owners.get(writer, set()) - mine.keys() - elsewhere, key=is_key):
        done = dropped(done, keys, path, kept=mine)
    owners = {owner: paths - disputed.get(owner, set()) for owner, paths in owners.items()} | {writer: set(mine)}
    return done | {"metadata": done["metadata"] | {"managedFields": _written(served, entries, owners)}}


def _conflict(disputed: dict[Writer, set[Path]], entries: list[Manifest]) -> Refusal:
    count = sum(map(len, disputed.values()))
    by_owner = {_writer(entry): entry for entry in entries}
    texts = []
    for owner, paths in disputed.items():
        lines = [to_text(path) for path in sorted(paths)]
        if len(lines) == 1:
            texts.append(f"conflict with {owner.to_text(by_owner[owner])}: {lines[0]}")
        elif lines:
            texts.append(f"conflicts with {owner.to_text(by_owner[owner])}:\n- " + "\n- ".join(lines))
    return Refusal(409, f"Apply failed with {count} conflict{'s' if count > 1 else ''}: " + "\n".join(texts))


def _writable(served: Served, manifest: Manifest, writer: Writer) -> Manifest:
    """The part of a manifest that a request may write."""
    if writer.subresource == "status":
        identity = {name: manifest[name] for name in ("apiVersion", "kind", "metadata") if name in manifest}
        return identity | ({"status": manifest["status"]} if "status" in manifest else {})
    return {name: value for name, value in manifest.items() if name != "status" or not served.has_status}


def _unowned(path: Path) -> bool:
    return path in _UNOWNED or path[:2] in _UNOWNED


def _entries(manifest: Manifest | None) -> list[Manifest]:
    return list((manifest or {}).get("metadata", {}).get("managedFields") or [])


def _owners(entries: list[Manifest]) -> list[tuple[Writer, set[Path]]]:
    return [(_writer(entry), from_wire(entry["fieldsV1"])) for entry in entries]


def _writer(entry: Manifest) -> Writer:
    return Writer(entry["manager"], entry["operation"], entry.get("subresource", ""))


def _written(served: Served, entries: list[Manifest], owners: dict[Writer, set[Path]]) -> list[Manifest]:
    """One entry for each owner of any field; an unchanged entry stays as it is."""
    before = {_writer(entry): entry for entry in entries}
    written = []
    for owner, paths in owners.items():
        fields = to_wire(paths)
        if owner in before and before[owner]["fieldsV1"] == fields:
            written.append(before[owner])
        elif paths:
            written.append(_entry(served, owner, fields))
    return written


def _entry(served: Served, owner: Writer, fields: Manifest) -> Manifest:
    entry = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": served.resource.api_version,
        "time": now_text(),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return entry | ({"subresource": owner.subresource} if owner.subresource else {})
