"""Reads the CustomResourceDefinitions that slicebus brings: a subset of Kueue's, and its own. The charts ship them."""

from functools import cache
from importlib.resources import files
from typing import Any

import orjson
import yaml


def custom_resource_definitions(package: str = __name__) -> list[dict[str, Any]]:
    """Every CustomResourceDefinition in a package, as manifests; by default those of slicebus."""
    read: list[dict[str, Any]] = orjson.loads(_read(package))
    return read


@cache
def _read(package: str) -> bytes:
    """The manifests as JSON, which is parsed a hundred times as fast as YAML."""
    entries = (entry for entry in files(package).iterdir() if entry.name.endswith(".yaml"))
    texts = [entry.read_text() for entry in sorted(entries, key=lambda entry: entry.name)]
    # The loader of libyaml takes a tenth of the time of that in Python.
    return orjson.dumps([yaml.load(text, yaml.CSafeLoader) for text in texts])
