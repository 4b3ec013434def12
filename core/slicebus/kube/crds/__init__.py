"""The CustomResourceDefinitions that slicebus brings: a subset of Kueue's, and its own. The charts ship the same."""

from importlib.resources import files
from typing import Any

import yaml


def custom_resource_definitions(package: str = __name__) -> list[dict[str, Any]]:
    """Every CustomResourceDefinition that lies in a package, as manifests; by default those of slicebus."""
    found = [entry for entry in files(package).iterdir() if entry.name.endswith(".yaml")]
    return [yaml.safe_load(entry.read_text()) for entry in sorted(found, key=lambda entry: entry.name)]
