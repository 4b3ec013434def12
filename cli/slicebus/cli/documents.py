"""Reads Kubernetes objects from files that a user names."""

import json
import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from slicebus.proto.errors import ConfigurationError

Manifest = dict[str, Any]
_STANDARD_INPUT = "-"
_TEXTS_BY_NAME = ("labels", "annotations")
_LEAST, _MOST = -(2**63), 2**64 - 1
"""The whole numbers that JSON is written with here."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNREADABLE = (ValueError, AttributeError, RecursionError)
"""What PyYAML raises for a day that no month has, a tag whose text does not suit it, and a thousand brackets."""


class _Loader(yaml.SafeLoader):
    """Reads YAML as kubectl does: what looks as a date is a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def documents(file: str) -> Iterator[Manifest]:
    """The objects of a YAML or JSON file, those of a List among them; `-` for standard input. Each has metadata, and
    nothing that JSON has not. Raises ConfigurationError."""
    for document in _loaded(file):
        is_list = isinstance(document, dict) and str(document.get("kind", "")).endswith("List")
        items = document.get("items") or [] if is_list else [document]
        for found in items if isinstance(items, list) else [items]:
            if not _is_object(found):
                raise ConfigurationError(f"{file} has something that is no Kubernetes object")
            if odd := next(_beyond_json(found), ""):
                raise ConfigurationError(f"{file} has {odd}, which no Kubernetes object has")
            if wrong := next(_no_texts(found["metadata"]), ""):
                raise ConfigurationError(f"{file}: {found.get('kind')} {found['metadata'].get('name')}: {wrong}")
            yield found


def _is_object(found: object) -> bool:
    metadata = found.get("metadata") if isinstance(found, dict) else None
    return isinstance(metadata, dict) and all(isinstance(metadata.get(name) or {}, dict) for name in _TEXTS_BY_NAME)


def _no_texts(metadata: Manifest) -> Iterator[str]:
    """What is no text, and has to be: YAML makes a number or a truth value of what somebody has not quoted."""
    texts = {name: metadata.get(name) for name in ("name", "generateName", "namespace")}
    for field in _TEXTS_BY_NAME:
        texts |= {f"{field}.{name}": value for name, value in (metadata.get(field) or {}).items()}
    for path, value in texts.items():
        if isinstance(value, bool | int | float):
            yield f"metadata.{path} is {json.dumps(value)}, which is no text: quote it"
        elif not isinstance(value, str | None):
            yield f"metadata.{path} is no text"


def _beyond_json(found: Manifest) -> Iterator[str]:
    """What YAML has and JSON has not. What is referred to again and again is looked at once."""
    left, seen = list[object]([found]), set[int]()
    while left:
        value = left.pop()
        match value:
            case dict() | list() if id(value) not in seen:
                seen.add(id(value))
                left += [*value, *value.values()] if isinstance(value, dict) else value
                yield from (f"the key {key!r}" for key in value if isinstance(value, dict) and not isinstance(key, str))
            case int() if not _LEAST <= value <= _MOST:
                yield "a number of more than 64 bits"
            case bytes() | set() | tuple() | date():
                yield f"a {type(value).__name__}"
            case str() if _SURROGATE.search(value):
                yield "half of a character"


def _loaded(file: str) -> list[Any]:
    try:
        text = sys.stdin.read() if file == _STANDARD_INPUT else Path(file).read_text(encoding="utf-8")
        return [document for document in yaml.load_all(text, _Loader) if document is not None]
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror or error}") from error
    except (yaml.YAMLError, *_UNREADABLE) as error:
        raise ConfigurationError(f"{file} is no YAML: {' '.join(str(error).split())}") from error
