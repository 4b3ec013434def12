"""Validates metadata, and generates names."""

import re
from collections.abc import Iterator
from typing import Any

from slicebus.ambient.clock import randomness

Manifest = dict[str, Any]

_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_NAME = re.compile(_PART)
_SUBDOMAIN = re.compile(rf"{_PART}(\.{_PART})*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL_MOST, _SUBDOMAIN_MOST = 63, 253
_ANNOTATIONS_MOST = 256 * 1024
"""Of all annotations of an object together."""
_SUFFIX_LETTERS, _SUFFIX_LENGTH = "bcdfghjklmnpqrstvwxz2456789", 5
"""The real server's letters and length: no vowels, so no words."""
_OMITTED_WHEN_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences")


def generated_name(prefix: str) -> str:
    """A generated name with a prefix."""
    suffix = "".join(randomness().choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
    return prefix[: _LABEL_MOST - _SUFFIX_LENGTH] + suffix


def tidied(metadata: Manifest) -> Manifest:
    """Metadata without empty and null fields."""
    return {
        name: value
        for name, value in metadata.items()
        if value is not None and (value or name not in _OMITTED_WHEN_EMPTY)
    }


def problems(metadata: Manifest, *, label_name: bool = False) -> Iterator[str]:
    """The problems of an object's metadata. `label_name`: the kind's names are DNS labels."""
    yield from _name_problems(str(metadata.get("name") or ""), label_name=label_name)
    for name, value in (metadata.get("labels") or {}).items():
        yield from _key_problems(name)
        if not isinstance(value, str):
            yield f"metadata.labels: Invalid value: {value!r}: must be a string"
        elif len(value) > _LABEL_MOST:
            yield f'metadata.labels: Invalid value: "{value}": must be no more than {_LABEL_MOST} bytes'
        elif value and not _QUALIFIED.fullmatch(value):
            yield f'metadata.labels: Invalid value: "{value}": a valid label must consist of alphanumeric characters'
    if _size(metadata.get("annotations") or {}) > _ANNOTATIONS_MOST:
        yield f"metadata.annotations: Too long: may not be more than {_ANNOTATIONS_MOST} bytes"
    for owner in metadata.get("ownerReferences") or ():
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield f"metadata.ownerReferences.{field}: Invalid value: must not be empty"


def _size(annotations: Manifest) -> int:
    return sum(len(name.encode()) + len(str(text).encode()) for name, text in annotations.items())


def _name_problems(name: str, *, label_name: bool) -> Iterator[str]:
    most, form = (_LABEL_MOST, "label") if label_name else (_SUBDOMAIN_MOST, "subdomain")
    if not name:
        yield "metadata.name: Required value: name or generateName is required"
    elif len(name) > most:
        yield f'metadata.name: Invalid value: "{name}": must be no more than {most} bytes'
    elif not (_LABEL_NAME if label_name else _SUBDOMAIN).fullmatch(name):
        yield (
            f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 {form} must consist of lower case '
            "alphanumeric characters and '-', and must start and end with an alphanumeric character"
        )


def _key_problems(key: str) -> Iterator[str]:
    prefix, slash, name = key.rpartition("/")
    well_formed = _QUALIFIED.fullmatch(name) and len(name) <= _LABEL_MOST
    if not well_formed or (slash and not _SUBDOMAIN.fullmatch(prefix)):
        yield f'metadata.labels: Invalid value: "{key}": a qualified name must consist of alphanumeric characters'
