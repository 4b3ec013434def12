"""Reads Kubernetes objects from files that a user names."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from slicebus.proto.errors import ConfigurationError

Manifest = dict[str, Any]
_STANDARD_INPUT = "-"
_UNREADABLE = (ValueError, AttributeError, RecursionError)
"""What PyYAML raises for a day that no month has, a tag whose text does not suit it, and a thousand brackets."""


def documents(file: str) -> Iterator[Manifest]:
    """The objects of a YAML or JSON file, those of a List among them; `-` for standard input. Each has metadata. Raises
    ConfigurationError."""
    for document in _loaded(file):
        is_list = isinstance(document, dict) and str(document.get("kind", "")).endswith("List")
        items = document.get("items") or [] if is_list else [document]
        for found in items if isinstance(items, list) else [items]:
            if not (isinstance(found, dict) and isinstance(found.get("metadata"), dict)):
                raise ConfigurationError(f"{file} has something that is no Kubernetes object")
            yield found


def _loaded(file: str) -> list[Any]:
    try:
        text = sys.stdin.read() if file == _STANDARD_INPUT else Path(file).read_text(encoding="utf-8")
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror or error}") from error
    except (yaml.YAMLError, *_UNREADABLE) as error:
        raise ConfigurationError(f"{file} is no YAML: {' '.join(str(error).split())}") from error
