"""The policies of ClusterQueues and Cohorts are written as Kueue's own definitions have them."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

Schema = dict[str, Any]


def schema(text: str, part: str, field: str) -> Schema:
    """One field of `spec` or `status` in v1beta2, without its descriptions."""
    versions = yaml.safe_load(text)["spec"]["versions"]
    [found] = [version["schema"]["openAPIV3Schema"] for version in versions if version["name"] == "v1beta2"]
    defined: Schema = without_descriptions(found["properties"][part]["properties"][field])
    return defined


def without_descriptions(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_descriptions(each) for each in schema]
    if isinstance(schema, dict):
        return {
            name: " ".join(value.split()) if name == "rule" else without_descriptions(value)
            for name, value in schema.items()
            if not (name == "description" and isinstance(value, str))
        }
    return schema


@pytest.mark.parametrize(
    ("plural", "part", "field"),
    [
        ("clusterqueues", "spec", "preemption"),
        ("clusterqueues", "spec", "flavorFungibility"),
        ("clusterqueues", "spec", "fairSharing"),
        ("clusterqueues", "status", "fairSharing"),
        ("cohorts", "spec", "fairSharing"),
    ],
)
def test_a_policy_is_defined_as_kueue_defines_it(shared_dir: Path, plural: str, part: str, field: str) -> None:
    ours = (files("slicebus.kube.crds") / f"{plural}.kueue.x-k8s.io.yaml").read_text()
    theirs = (shared_dir / "crds" / "kueue" / f"kueue.x-k8s.io_{plural}.yaml").read_text()
    assert schema(ours, part, field) == schema(theirs, part, field)
